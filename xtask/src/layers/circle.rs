//! The largest circle of a graph: Tarjan's strongly connected components.

use std::collections::BTreeSet;

struct Search<'a> {
    next: Vec<Vec<usize>>,
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    seen: usize,
    best: &'a mut Vec<usize>,
}

/// The members of the largest circle among `nodes` nodes; none where there is no circle.
pub fn largest(nodes: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let mut next = vec![Vec::new(); nodes];
    arrows.iter().for_each(|&(from, to)| next[from].push(to));
    let mut best = Vec::new();
    let mut search = Search {
        next,
        order: vec![None; nodes],
        low: vec![0; nodes],
        stack: Vec::new(),
        seen: 0,
        best: &mut best,
    };
    (0..nodes).for_each(|node| {
        if search.order[node].is_none() {
            search.visit(node);
        }
    });
    best.sort_unstable();
    best
}

impl Search<'_> {
    /// As deep as the longest chain of files.
    fn visit(&mut self, node: usize) {
        self.order[node] = Some(self.seen);
        self.low[node] = self.seen;
        self.seen += 1;
        self.stack.push(node);
        for to in self.next[node].clone() {
            match self.order[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(order) if self.stack.contains(&to) => self.low[node] = self.low[node].min(order),
                Some(_) => {}
            }
        }
        if self.order[node] == Some(self.low[node]) {
            let start = self.stack.iter().position(|&other| other == node).unwrap_or(0);
            let circle = self.stack.split_off(start);
            if circle.len() > self.best.len().max(1) {
                *self.best = circle;
            }
        }
    }
}
