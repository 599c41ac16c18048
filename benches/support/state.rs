//! Values that no two steps share: SQLite neither writes nor syncs a page that stays the same.

/// `words` times 16 hexadecimal digits, determined by the seed.
pub(crate) fn hex(seed: u64, words: usize) -> String {
    let mut state = seed;
    let mut word = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        format!("{:016x}", z ^ (z >> 31))
    };
    (0..words).map(|_| word()).collect()
}
