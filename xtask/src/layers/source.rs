//! What one source file says of modules, imports, items and paths, read from its tokens.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One `use` of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The name it has here; `None` for `*`.
    pub name: Option<String>,
    /// The path, keywords included.
    pub path: Vec<String>,
    /// Whether it is exported again.
    pub public: bool,
}

/// A module, written in a file of its own or within another.
#[derive(Default, Debug)]
pub struct Source {
    /// Modules in files of their own.
    pub outside: Vec<String>,
    /// Modules within this file.
    pub inside: Vec<(String, Source)>,
    pub imports: Vec<Import>,
    /// Names of items it defines.
    pub items: BTreeSet<String>,
    /// Names of macros it exports from the crate's root.
    pub exported: BTreeSet<String>,
    /// Paths in its code, single names included.
    pub paths: BTreeSet<Vec<String>>,
}

impl Source {
    /// Reads a file's text.
    pub fn read(text: &str) -> Result<Source, String> {
        let tokens: TokenStream = text.parse().map_err(|e| format!("{e}"))?;
        let mut source = Source::default();
        source.walk(&tokens.into_iter().collect::<Vec<_>>(), true);
        Ok(source)
    }

    /// Reads tokens; `top` where items belong to the module and not to a body.
    fn walk(&mut self, tokens: &[TokenTree], top: bool) {
        let mut at = 0;
        let mut export = false;
        while at < tokens.len() {
            if let Some(attribute) = attribute(tokens, at) {
                if for_tests(&attribute) {
                    at = after_item(tokens, at);
                    continue;
                }
                export |= idents(&attribute).iter().any(|word| word == "macro_export");
                self.walk(&attribute, false);
                at += 2;
                continue;
            }
            at = match &tokens[at] {
                TokenTree::Ident(_) => self.word(tokens, at, top, &mut export),
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    self.walk(&inner, top && macro_call(tokens, at));
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Reads what begins with a word, and returns where it ends.
    fn word(&mut self, tokens: &[TokenTree], at: usize, top: bool, export: &mut bool) -> usize {
        let word = ident(tokens, at).unwrap_or_default();
        match word.as_str() {
            "use" if !punct(tokens, at + 1, '<') => return self.import(tokens, at),
            "mod" if ident(tokens, at + 1).is_some() => return self.module(tokens, at),
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                if top && !lifetime(tokens, at) =>
            {
                let name = if ident(tokens, at + 1).as_deref() == Some("mut") { at + 2 } else { at + 1 };
                self.items.extend(ident(tokens, name));
                return if word == "const" { at + 1 } else { name };
            }
            "macro_rules" if punct(tokens, at + 1, '!') => {
                let names = if std::mem::take(export) { &mut self.exported } else { &mut self.items };
                names.extend(ident(tokens, at + 2));
                return at + 3;
            }
            _ => {}
        }
        let path = path(tokens, at);
        let end = at + 1 + 3 * (path.len() - 1);
        let part =
            at > 0 && (punct(tokens, at - 1, '.') || lifetime(tokens, at) || colons_before(tokens, at));
        if !part {
            self.paths.insert(path);
        }
        end
    }

    fn module(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let name = ident(tokens, at + 1).unwrap_or_default();
        if let Some(TokenTree::Group(group)) = tokens.get(at + 2) {
            let mut source = Source::default();
            source.walk(&group.stream().into_iter().collect::<Vec<_>>(), true);
            self.inside.push((name, source));
        } else {
            self.outside.push(name);
        }
        at + 3
    }

    fn import(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let public = at > 0
            && (ident(tokens, at - 1).as_deref() == Some("pub")
                || at > 1
                    && ident(tokens, at - 2).as_deref() == Some("pub")
                    && group(tokens, at - 1).is_some());
        let end = (at..tokens.len()).find(|&i| punct(tokens, i, ';')).unwrap_or(tokens.len());
        self.branch(&tokens[at + 1..end], &[], public);
        end + 1
    }

    /// Reads one branch of a `use` tree below `prefix`.
    fn branch(&mut self, tokens: &[TokenTree], prefix: &[String], public: bool) {
        let mut path = prefix.to_vec();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(word) = ident(tokens, at) {
                if word == "as" {
                    let name = ident(tokens, at + 1);
                    self.imports.push(Import { name, path: without_self(path), public });
                    return;
                }
                path.push(word);
            } else if punct(tokens, at, '*') {
                self.imports.push(Import { name: None, path, public });
                return;
            } else if let Some(inner) = group(tokens, at) {
                for branch in inner.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')) {
                    self.branch(branch, &path, public);
                }
                return;
            }
            at += 1;
        }
        let path = without_self(path);
        if !tokens.is_empty() {
            self.imports.push(Import { name: path.last().cloned(), path, public });
        }
    }
}

/// `a::self` is `a`.
fn without_self(mut path: Vec<String>) -> Vec<String> {
    if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
        path.pop();
    }
    path
}

/// The path that begins at a word.
fn path(tokens: &[TokenTree], at: usize) -> Vec<String> {
    let mut path: Vec<String> = ident(tokens, at).into_iter().collect();
    let mut next = at + 1;
    while punct(tokens, next, ':') && punct(tokens, next + 1, ':') {
        let Some(word) = ident(tokens, next + 2) else { break };
        path.push(word);
        next += 3;
    }
    path
}

/// Whether the word at `at` is a lifetime's, as in `&'static str`.
fn lifetime(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && punct(tokens, at - 1, '\'')
}

fn colons_before(tokens: &[TokenTree], at: usize) -> bool {
    at > 1 && punct(tokens, at - 1, ':') && punct(tokens, at - 2, ':')
}

/// Whether the group at `at` is what a macro is called with, as in `bitflags! { … }`.
fn macro_call(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && punct(tokens, at - 1, '!')
}

/// What stands in the brackets of an attribute.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<Vec<TokenTree>> {
    if punct(tokens, at, '#') { group(tokens, at + 1) } else { None }
}

/// Whether an attribute keeps what follows for tests or for models of loom.
fn for_tests(attribute: &[TokenTree]) -> bool {
    let words = idents(attribute);
    match words.first().map(String::as_str) {
        Some("test") => true,
        Some("cfg") => words.iter().any(|w| w == "test" || w == "loom") && !words.iter().any(|w| w == "not"),
        _ => false,
    }
}

/// All words of tokens, those in groups included.
fn idents(tokens: &[TokenTree]) -> Vec<String> {
    let mut words = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => words.push(word.to_string()),
            TokenTree::Group(group) => words.extend(idents(&group.stream().into_iter().collect::<Vec<_>>())),
            _ => {}
        }
    }
    words
}

/// The end of the item whose first attribute stands at `at`.
fn after_item(tokens: &[TokenTree], at: usize) -> usize {
    let mut import = false;
    for next in at..tokens.len() {
        import |= ident(tokens, next).as_deref() == Some("use");
        let body = matches!(&tokens[next], TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
        if punct(tokens, next, ';') || body && !import {
            return next + 1;
        }
    }
    tokens.len()
}

fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn punct(tokens: &[TokenTree], at: usize, sign: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == sign)
}

fn group(tokens: &[TokenTree], at: usize) -> Option<Vec<TokenTree>> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group.stream().into_iter().collect()),
        _ => None,
    }
}
