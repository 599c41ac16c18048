//! Serves the inspector over the ten faults of a night, for `tests/web/night.mjs`.
//!
//!     night PORT FOLDER
#![allow(missing_docs, unreachable_pub, clippy::print_stdout)]

#[path = "../tests/night/faults.rs"]
mod faults;

use std::path::PathBuf;
use std::process::Command;

use forever_inspect::Inspector;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().unwrap_or_default();
    let folder = PathBuf::from(arguments.next().unwrap_or_default());
    if port == "die" {
        faults::die(&folder).await;
    }
    let program = std::env::current_exe()?;
    let forever = faults::open(&folder, || {
        let mut process = Command::new(&program);
        process.arg("die").arg(&folder);
        process
    })
    .await;
    let port: u16 = port.parse()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("inspector: http://{}/", listener.local_addr()?);
    Inspector::new(&forever).allow_actions().serve(listener).await;
    Ok(())
}
