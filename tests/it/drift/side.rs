//! `steps!` under way whose branches or items are changed: results are known by names and items, not by places.
use super::{stopped_side_by_side, versions};

async fn one(io: &super::World, n: u32) -> anyhow::Result<u32> {
    io.did("one", n).await
}

async fn two(io: &super::World, n: u32) -> anyhow::Result<u32> {
    io.did("two", n * 10).await
}

#[derive(Clone, Copy)]
struct Plain(u32);

#[tokio::test(start_paused = true)]
async fn branches_exchanged_keep_their_results() {
    versions! {
        old(io, n: u32) -> (u32, u32) {
            let both = steps!(step!("one", io.did("one", n).await?), step!("two", io.did("two", n * 10).await?));
            Ok(both)
        }
        new(io, n: u32) -> (u32, u32) {
            let both = steps!(step!("two", io.did("two", n * 10).await?), step!("one", io.did("one", n).await?));
            Ok(both)
        }
        of_derived_names(io, n: u32) -> (u32, u32) {
            let both = steps!(two(&io, n).await?, one(&io, n).await?);
            Ok(both)
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.resumes::<new::work>((30, 3), &["two"]).await;
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.resumes::<of_derived_names::work>((30, 3), &["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_branch_added_is_run_and_a_branch_removed_parks() {
    versions! {
        old(io, n: u32) -> (u32, u32) {
            let both = steps!(step!("one", io.did("one", n).await?), step!("two", io.did("two", n).await?));
            Ok(both)
        }
        added(io, n: u32) -> (u32, u32, u32) {
            let both = steps!(step!("zero", io.did("zero", n).await?), step!("one", io.did("one", n).await?), step!("two", io.did("two", n).await?));
            Ok(both)
        }
        removed(io, n: u32) -> (u32, u32) {
            let both = steps!(step!("two", io.did("two", n).await?), step!("three", io.did("three", n).await?));
            Ok(both)
        }
        renamed(io, n: u32) -> (u32, u32) {
            let both = steps!(step!("first", was = "one", io.did("first", n).await?), step!("two", io.did("two", n).await?));
            Ok(both)
        }
        list(io, n: u32) -> Vec<u32> {
            let both = steps!(for word in ["one", "two"], io.did(word, n).await?);
            Ok(both)
        }
        all_renamed(io, n: u32) -> (u32, u32) {
            let all = steps!("all", was = "both", step!("one", io.did("one", n).await?), step!("two", io.did("two", n).await?));
            Ok(all)
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.parks_saying::<removed::work>("`work` cannot resume: branch `one` of `both` may have its result stored, and is gone").await;
    fiber.parks_saying::<list::work>("`work` cannot resume: the branches of `both` are another kind now").await;
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.resumes::<added::work>((3, 3, 3), &["zero", "two"]).await;
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.resumes::<renamed::work>((3, 3), &["two"]).await;
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.resumes::<all_renamed::work>((3, 3), &["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn branches_of_one_derived_name_exchanged_park() {
    versions! {
        old(io, n: u32) -> (u32, u32) {
            let both = steps!(io.did("one", n).await?, io.did("two", n * 10).await?);
            Ok(both)
        }
        new(io, n: u32) -> (u32, u32) {
            let both = steps!(io.did("two", n * 10).await?, io.did("one", n).await?);
            Ok(both)
        }
        edited(io, n: u32) -> (u32, u32) {
            let both = steps!(io.did("one", n).await?, io.did("two", n * 100).await?);
            Ok(both)
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.parks_saying::<new::work>("`work` cannot resume: `did` stands for other branches of `both` than before").await;
    fiber.resumes::<edited::work>((3, 300), &["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn items_in_another_order_or_more_of_them_keep_their_results() {
    versions! {
        old(io, n: u32) -> Vec<u32> {
            let all = steps!(for word in ["a", "b", "c"], limit = 2, io.did(word, word.len() as u32 + n).await?);
            Ok(all)
        }
        turned_round(io, n: u32) -> Vec<u32> {
            let all = steps!(for word in ["c", "b", "a", "d"], io.did(word, word.len() as u32 + n).await?);
            Ok(all)
        }
        without_one(io, n: u32) -> Vec<u32> {
            let all = steps!(for word in ["b", "c"], io.did(word, word.len() as u32 + n).await?);
            Ok(all)
        }
        renamed_in_front(io, n: u32) -> Vec<u32> {
            let found = steps!(was = "all", for word in ["a", "b", "c"], io.did(word, word.len() as u32 + n).await?);
            Ok(found)
        }
        renamed_behind(io, n: u32) -> Vec<u32> {
            let found = steps!(for word in ["a", "b", "c"], limit = 2, was = "all", io.did(word, word.len() as u32 + n).await?);
            Ok(found)
        }
        renamed_by_its_step(io, n: u32) -> Vec<u32> {
            let found = steps!(for word in ["a", "b", "c"], step!("find", was = "all", io.did(word, word.len() as u32 + n).await?));
            Ok(found)
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "b", 2).await;
    fiber.parks_naming::<without_one::work>("the result of `all[\"a\"]` is stored, and what `all` goes over has no such item now").await;
    fiber.resumes::<turned_round::work>(vec![4; 4], &["b", "d"]).await;
    let fiber = stopped_side_by_side(old::work(3), "b", 2).await;
    fiber.resumes::<renamed_in_front::work>(vec![4; 3], &["b"]).await;
    let fiber = stopped_side_by_side(old::work(3), "b", 2).await;
    fiber.resumes::<renamed_behind::work>(vec![4; 3], &["b"]).await;
    let fiber = stopped_side_by_side(old::work(3), "b", 2).await;
    fiber.resumes::<renamed_by_its_step::work>(vec![4; 3], &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn equal_items_and_long_ones_and_those_without_json_have_names_of_their_own() {
    versions! {
        equal(io, n: u32) -> Vec<u32> {
            let all = steps!(for word in ["a", "a", "b"], limit = 1, io.did(word, n).await?);
            Ok(all)
        }
        plain(io, n: u32) -> Vec<u32> {
            #[fresh]
            let items = [Plain(1), Plain(2), Plain(n)];
            let all = steps!(for item in items.iter().copied(), limit = 1, io.did(item.0.to_string(), item.0).await?);
            Ok(all)
        }
        plain_and_longer(io, n: u32) -> Vec<u32> {
            #[fresh]
            let items = [Plain(1), Plain(2), Plain(n), Plain(4)];
            let all = steps!(for item in items.iter().copied(), limit = 1, io.did(item.0.to_string(), item.0).await?);
            Ok(all)
        }
    }
    let fiber = stopped_side_by_side(equal::work(3), "b", 2).await;
    fiber.resumes::<equal::work>(vec![3; 3], &["b"]).await;
    let fiber = stopped_side_by_side(plain::work(3), "3", 2).await;
    fiber.parks_naming::<plain_and_longer::work>("the result of `all[1 of 3]` is stored").await;
    fiber.resumes::<plain::work>(vec![1, 2, 3], &["3"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_reads_the_stored_results() {
    versions! {
        old(io, n: u32) -> (u32, u32) {
            let both = steps!("both", step!("one", io.did("one", n).await?), step!("two", io.did("two", n).await?));
            Ok(both)
        }
        a_text(io, n: u32) -> (String, u32) {
            let both = steps!("both", step!("one", io.did("one", n.to_string()).await?), step!("two", io.did("two", n).await?));
            Ok(both)
        }
        items(io, n: u32) -> Vec<u32> {
            let all = steps!("all", for word in ["a", "b"], io.did(word, n).await?);
            Ok(all)
        }
        texts(io, n: u32) -> Vec<String> {
            let all = steps!("all", for word in ["a", "b"], io.did(word, n.to_string()).await?);
            Ok(all)
        }
        others(io, n: u32) -> Vec<u32> {
            let all = steps!("all", for word in ["c", "b"], io.did(word, n).await?);
            Ok(all)
        }
    }
    // Each of these asks a check first.
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.parks_saying::<a_text::work>("the result of `both[one]` cannot be read as `String`").await;
    fiber.resumes::<old::work>((3, 3), &["two"]).await;
    let fiber = stopped_side_by_side(items::work(3), "b", 1).await;
    fiber.parks_saying::<texts::work>("the result of `all[\"a\"]` cannot be read as `String`").await;
    fiber.parks_saying::<others::work>("the result of `all[\"a\"]` is stored, and what `all` goes over has no such item now").await;
    fiber.resumes::<items::work>(vec![3, 3], &["b"]).await;
}
