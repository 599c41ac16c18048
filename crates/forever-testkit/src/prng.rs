//! Random numbers that a seed repeats, on every machine (`SplitMix64`).

/// A sequence of random numbers that follows from its seed.
#[derive(Debug, Clone)]
pub struct Prng(u64);

impl Prng {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Prng(seed)
    }

    /// The sequence of a seed for one purpose: those of other purposes have nothing in common with
    /// it.
    #[must_use]
    pub fn of_purpose(seed: u64, purpose: &str) -> Self {
        Prng(purpose.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// The sequence of one attempt at a case: those of neighbouring cases have nothing in common.
    #[must_use]
    pub fn of_case(seed: u64, case: u64, attempt: u64) -> Self {
        let mut prng = Prng(seed);
        prng.stir(case);
        prng.stir(attempt);
        prng
    }

    /// Continues as another sequence, which follows from this one and `n`.
    pub fn stir(&mut self, n: u64) {
        self.0 = self.number() ^ n;
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
    }

    /// A number from 0 to below `end`, which must not be 0.
    pub fn below<N: Whole>(&mut self, end: N) -> N {
        N::from_number(self.number() % end.to_number())
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// True in one of so many cases.
    pub fn once_in(&mut self, cases: u32) -> bool {
        self.below(cases) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// As [`pick`](Self::pick), as a value.
    pub fn one_of<T: Clone>(&mut self, from: &[T]) -> T {
        self.pick(from).clone()
    }

    /// The index of one of them, more often of one with a greater weight.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left: usize = self.below(weights.iter().sum::<usize>());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("what is drawn is below the sum of the weights")
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A type of numbers that can be drawn.
pub trait Whole: Copy {
    #[doc(hidden)]
    fn to_number(self) -> u64;

    #[doc(hidden)]
    fn from_number(number: u64) -> Self;
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl Whole for $number {
            fn to_number(self) -> u64 {
                u64::try_from(self).expect("it is not negative")
            }

            fn from_number(number: u64) -> Self {
                <$number>::try_from(number).expect("it is less than the `end` that was given")
            }
        }
    )*};
}
// `i32`: the type of a literal that nothing else decides.
whole!(u8, i32, u32, u64, usize);

/// The number that an environment variable says: a seed, or how often.
///
/// # Panics
///
/// If it is no number.
#[must_use]
pub fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("`{name}` is not a number: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_of_splitmix64() {
        // The first numbers of the seed 1234567 in the published reference.
        let mut prng = Prng::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| prng.number()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn what_is_drawn_is_below_the_end_and_everything_is_drawn() {
        let mut prng = Prng::new(1);
        let mut seen = [false; 7];
        for _ in 0..200 {
            seen[prng.below(7_usize)] = true;
            assert_ne!(prng.weighted(&[1, 0, 3]), 1);
        }
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn purposes_have_sequences_of_their_own() {
        assert_ne!(Prng::of_purpose(1, "kills").number(), Prng::of_purpose(1, "orders").number());
        assert_eq!(Prng::of_purpose(1, "kills").number(), Prng::of_purpose(1, "kills").number());
    }
}
