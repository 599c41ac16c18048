//! Random numbers that a seed repeats (`SplitMix64`), so that two runs with the same arguments do
//! the same work.

/// A sequence of random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of a seed and a purpose.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Dice(purpose.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 to below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.number() % u64::from(end)).expect("less than `end`, which is a `u32`")
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
