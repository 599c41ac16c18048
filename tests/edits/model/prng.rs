//! The source of chance: splitmix64, so that a seed means the same bodies on every machine.

/// A stream of numbers that follows from its seed alone.
#[derive(Debug, Clone)]
pub(crate) struct Prng(u64);

impl Prng {
    /// The stream of one case: neighbouring seeds and cases have nothing in common.
    pub(crate) fn new(seed: u64, case: u64, attempt: u64) -> Self {
        let mut prng = Prng(seed);
        for part in [case, attempt] {
            prng.0 = prng.next() ^ part;
        }
        prng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end`, without `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    /// Yes in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// The index of one of them, more often the heavier ones.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("what is drawn is below the sum of the weights")
    }
}
