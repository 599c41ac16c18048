use forever::{call, recv, select, sleep, sleep_until, spawn, steps, wait, wait_all};

async fn plain() {
    sleep!(std::time::Duration::from_secs(1));
    sleep_until!(due);
    let answer: u32 = recv!("answer");
    let handle = spawn!(child());
    let value = wait!(handle);
    let values = wait_all!(handles);
    let (a, b) = steps!(one().await, two().await);
    let called = call!(child());
    let first = select! { answer: u32 = recv!("answer") => answer };
}

fn main() {}
