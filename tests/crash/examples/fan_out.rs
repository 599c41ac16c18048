//! A book of one chapter.
use std::sync::atomic::Ordering;

use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::sizes;

use super::{LEFT, PAGES, book, chapter, written};

#[tokio::test]
async fn the_pages_of_a_chapter_are_in_order() {
    LEFT.store(i64::MAX, Ordering::Relaxed);
    let survived = crash_everywhere(
        |_| Forever::builder().in_memory().fiber::<book>().fiber::<chapter>(),
        async |forever: Forever| forever.spawn(book(vec!["tides".into()])).key("book").await.unwrap().wait().await.unwrap(),
    )
    .at_most(sizes::at_most(12))
    .await
    .unwrap();
    let pages: Vec<_> = (1..=PAGES).map(|page| format!("tides {page}")).collect();
    assert_eq!(survived.outcome, [written("tides", &pages)]);
}
