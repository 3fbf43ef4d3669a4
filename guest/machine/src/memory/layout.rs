//! Where assembly finds the fields of blocks that Rust declares: the literal offsets in the folders cpu and trap.
//!
//! A field that moves must not compile: patched programs jump through a slot of [`Vcpu`](crate::cpu::Vcpu) whose
//! offset stands in every patched image.

/// Refuses to compile unless each field lies at the offset that assembly takes it to be at.
macro_rules! pinned {
    ($block:ty { $($field:ident: $at:expr),+ $(,)? }) => {
        $(const _: () = assert!(
            core::mem::offset_of!($block, $field) == $at as usize,
            concat!("assembly takes ", stringify!($block), "::", stringify!($field), " to be at ", stringify!($at)),
        );)+
    };
}

pub(crate) use pinned;
