//! What the CPU may guess while it runs domains: branch targets that others have trained, stores that it overtakes, and with
//! whom a core's threads are shared. One choice for all domains of a process, made before its first.

use doppel_confine::limits::{INDIRECT_BRANCH, STORE_BYPASS};
use serde::{Deserialize, Serialize};

/// Which guesses domains' processes must do without (SECURITY.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speculation {
    /// None: as for any process of the host.
    Free,
    /// Targets of indirect branches, which other domains could have trained (Spectre variant 2); and a core's threads are
    /// shared only among what this process runs.
    #[default]
    Branches,
    /// Loads before the stores they depend on (variant 4) too.
    All,
}

impl Speculation {
    pub(crate) fn guesses(self) -> &'static [u64] {
        match self {
            Self::Free => &[],
            Self::Branches => &[INDIRECT_BRANCH],
            Self::All => &[INDIRECT_BRANCH, STORE_BYPASS],
        }
    }

    /// Readies this process for starting domains.
    pub(crate) fn prepare(self) {
        if self != Self::Free {
            // Cores without several threads, and kernels without core scheduling, have nothing to share or to part.
            doppel_sys::cpu::own_cores();
        }
    }
}
