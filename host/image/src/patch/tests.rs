//! Crafted programs: what is patched, and what only looks as if it should be.
