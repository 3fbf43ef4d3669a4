//! Numbers that programs pass to system calls and that name one thing of several: commands, ways, kinds.
//!
//! [`numbers!`](crate::core::numbers::numbers) declares an enum of them, which is decoded once, at the border.

/// Declares an enum with the numbers of its variants; `TryFrom<u32>` gives EINVAL for all other numbers.
macro_rules! numbers {
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        $vis enum $name {
            $($(#[$doc])* $variant = $number,)+
        }

        impl TryFrom<u32> for $name {
            type Error = crate::Errno;

            #[inline]
            fn try_from(number: u32) -> crate::Result<Self> {
                match number {
                    $($number => Ok(Self::$variant),)+
                    _ => Err(crate::Errno::EINVAL),
                }
            }
        }
    };
}

pub(crate) use numbers;
