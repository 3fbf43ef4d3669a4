//! Hooks: what a layer asks for of one above it.
//!
//! Key type: [`Hook`], a function (or a few) that the layer above gives at boot. Every process of the domain has its own
//! copy, set before there is a second one, and anew in a clone.

use doppel_machine::sync::Once;

/// Functions of a layer above. Used before boot it panics.
pub struct Hook<F>(Once<F>);

impl<F: Copy> Hook<F> {
    /// One that is set at boot.
    pub const fn new() -> Self {
        Self(Once::new())
    }

    /// Sets it; once, at boot.
    pub fn set(&self, f: F) {
        assert!(self.0.set(f).is_ok(), "a hook is set twice");
    }

    /// What was set.
    #[inline]
    pub fn get(&self) -> F {
        match self.0.get() {
            Some(f) => *f,
            None => panic!("a hook is used before boot"),
        }
    }
}

impl<F: Copy> Default for Hook<F> {
    fn default() -> Self {
        Self::new()
    }
}
