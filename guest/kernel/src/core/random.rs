//! The domain's random numbers: ChaCha20 keyed by the host's seed.
//!
//! After every request the key is replaced by fresh output, so an arena captured later does not tell what
//! was drawn before.

use doppel_machine::boot;
use doppel_machine::sync::SpinLock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::core::part::Part;

pub(crate) struct Generator {
    rng: SpinLock<ChaCha20Rng>,
}

/// The domain's.
pub(crate) static GENERATOR: Part<Generator> = Part::new();

impl Default for Generator {
    fn default() -> Self {
        Self { rng: SpinLock::new(ChaCha20Rng::from_seed(boot::start_info().seed)) }
    }
}

/// A generator of its own for one request.
pub(crate) fn fork() -> ChaCha20Rng {
    let g = GENERATOR.get();
    let mut rng = g.rng.lock();
    let (mut mine, mut next) = ([0u8; 32], [0u8; 32]);
    rng.fill_bytes(&mut mine);
    rng.fill_bytes(&mut next);
    *rng = ChaCha20Rng::from_seed(next);
    ChaCha20Rng::from_seed(mine)
}

/// Starts anew from the host's seed: what a clone draws has nothing to do with its twins' numbers.
pub fn reseed() {
    let g = GENERATOR.get();
    *g.rng.lock() = ChaCha20Rng::from_seed(boot::start_info().seed);
}

/// Fills a kernel buffer with random bytes (also for AT_RANDOM and address randomisation).
pub fn fill(buf: &mut [u8]) {
    fork().fill_bytes(buf);
}
