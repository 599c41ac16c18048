//! Values that no two steps share: SQLite neither writes nor syncs a page that stays the same.
use std::fmt::Write;

use forever_testkit::prng::Prng;

/// `words` times 16 hexadecimal digits, determined by the seed.
pub(crate) fn hex(seed: u64, words: usize) -> String {
    let mut prng = Prng::new(seed);
    let mut text = String::with_capacity(16 * words);
    for _ in 0..words {
        // Into a string, this cannot fail.
        let _ = write!(text, "{:016x}", prng.number());
    }
    text
}
