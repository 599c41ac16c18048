//! Ten faults of a night, each with another cause and another remedy. What is outside of the
//! program works again once there is a file of its name.
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use forever_chat::message::{Chunk, UiMessage};
use forever_chat::{ChatAgent, ChatBuilder, ChatHandle, Turn};
use forever_macros::fiber;
use forever_runtime::agent::{Agent, AgentHandle, Due};
use forever_runtime::fiber::{Backoff, FiberFilter, FiberState, Retry};
use forever_runtime::{BoxError, Builder, Forever};
use forever_testkit::waiting::eventually;

/// What the program calls.
#[derive(Debug, Clone)]
pub struct Outside {
    folder: PathBuf,
}

impl Outside {
    fn works(&self, what: &str) -> bool {
        self.folder.join(what).exists()
    }

    fn ask(&self, what: &str) -> Result<(), BoxError> {
        if self.works(what) { Ok(()) } else { Err(format!("{what}: connection refused").into()) }
    }
}

/// 1: parked after a deploy.
mod last_deploy {
    use super::*;

    #[fiber(crate = forever_runtime)]
    pub async fn report(month: u32) -> Result<u32, BoxError> {
        let rows = step!("read rows", month * 100);
        let signed: bool = recv!("signature");
        Ok(rows + u32::from(signed))
    }
}

#[fiber(crate = forever_runtime)]
async fn report(month: u32) -> Result<u32, BoxError> {
    let table = step!("read table", month * 100);
    Ok(table)
}

/// 2: a step that fails since an API is down.
#[fiber(crate = forever_runtime)]
async fn bill(outside: Res<Outside>, customer: String) -> Result<u32, BoxError> {
    let total = step!("add up", u32::try_from(customer.len())?);
    let retry = Retry::times(10_000).backoff(Backoff::fixed(Duration::from_millis(300)));
    step!("post the bill", retry = retry, outside.ask("billing")?);
    Ok(total)
}

/// 3: an effect in doubt.
#[fiber(crate = forever_runtime)]
async fn pay(outside: Res<Outside>, amount: u32, #[secret] card: String) -> Result<String, BoxError> {
    let receipt = step!("charge", effect, |op| charge(&outside, op.id(), amount, &card).await);
    Ok(receipt)
}

async fn charge(outside: &Outside, id: &str, amount: u32, card: &str) -> String {
    if !outside.works("bank") {
        std::future::pending::<()>().await;
    }
    format!("receipt {id} for {amount}, {} digits", card.len())
}

/// 4: a fiber that ends its worker each time it runs.
#[fiber(crate = forever_runtime, max_recoveries = 1)]
async fn render(outside: Res<Outside>, page: u32) -> Result<u32, BoxError> {
    let laid_out = step!("lay out", page + 1);
    let pixels = step!("rasterise", rasterise(&outside, laid_out).await);
    Ok(pixels)
}

async fn rasterise(outside: &Outside, page: u32) -> u32 {
    if !outside.works("renderer") {
        std::future::pending::<()>().await;
    }
    page * 1_000
}

/// 5: a wait for a message that is never sent.
#[fiber(crate = forever_runtime)]
async fn approve(order: String) -> Result<String, BoxError> {
    let granted: bool = recv!("approval");
    Ok(format!("{order} {granted}"))
}

/// 6: a chat whose turns fail.
pub struct Desk {
    outside: Outside,
}

impl Agent for Desk {
    const CLASS: &'static str = "desk";
    type State = ();
}

impl ChatAgent for Desk {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        self.outside.ask("model")?;
        turn.write(Chunk::text_start("text")).await?;
        turn.write(Chunk::text_delta("text", "It works again.")).await?;
        turn.write(Chunk::text_end("text")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

/// 7: a schedule that fails.
pub struct Janitor {
    outside: Outside,
}

impl Agent for Janitor {
    const CLASS: &'static str = "janitor";
    type State = ();

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        self.outside.ask("disk").map_err(|why| format!("{}: {why}", due.name()).into())
    }
}

/// 8: an agent that cannot be woken, with a fiber that was interrupted.
pub struct Vault {
    outside: Outside,
}

impl Agent for Vault {
    const CLASS: &'static str = "vault";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        self.outside.ask("keys")
    }
}

#[fiber(crate = forever_runtime)]
async fn seal(outside: Res<Outside>, drawer: u32) -> Result<u32, BoxError> {
    step!("turn the key", turned(&outside).await);
    Ok(drawer)
}

async fn turned(outside: &Outside) {
    if !outside.works("key") {
        std::future::pending::<()>().await;
    }
}

/// 9: a queue of messages that is not read.
#[fiber(crate = forever_runtime)]
async fn import(ctx: &FiberContext, rows: u32) -> Result<u32, BoxError> {
    let began: bool = recv!("begin");
    let mut sum = u32::from(began) - 1;
    for _ in 0..rows {
        let row: u32 = recv!("row");
        sum += row;
    }
    ctx.set_progress(&sum)?;
    Ok(sum)
}

/// 10: fibers that fail with an error.
#[fiber(crate = forever_runtime)]
async fn ship(outside: Res<Outside>, order: String) -> Result<String, BoxError> {
    let parcel = step!("pack", format!("a parcel for {order}"));
    step!("hand over", outside.ask("warehouse")?);
    Ok(parcel)
}

fn builder(file: &Path, outside: &Outside) -> Builder {
    let (desk, janitor, vault) = (outside.clone(), outside.clone(), outside.clone());
    Forever::builder()
        .sqlite(file)
        .resource(outside.clone())
        .fiber::<bill>()
        .fiber::<pay>()
        .fiber::<render>()
        .fiber::<approve>()
        .fiber::<import>()
        .fiber::<ship>()
        .fiber::<seal>()
        .chat_agent(move |_| Desk { outside: desk.clone() })
        .agent(move |_| Janitor { outside: janitor.clone() })
        .agent(move |_| Vault { outside: vault.clone() })
}

/// Opens a database with the ten faults in it. `process` starts a process that calls [`die`] with
/// the folder.
pub async fn open(folder: &Path, process: impl Fn() -> Command) -> Forever {
    let outside = Outside { folder: folder.to_owned() };
    // Yesterday agents could be woken.
    std::fs::write(folder.join("keys"), "").unwrap();
    killed(process());
    std::fs::remove_file(folder.join("keys")).unwrap();
    killed(process());
    let forever = builder(&folder.join("night.db"), &outside).fiber::<report>().open().await.unwrap();
    tonight(&forever).await;
    forever
}

/// Waits until a process says that it stands where it is to die, and kills it.
fn killed(mut process: Command) {
    let mut child = process.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).any(|line| line.contains(STANDS));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said, "it has ended by itself");
}

const STANDS: &str = "it stands";

/// What a process does until it is killed: that of yesterday seeds the database, the one after the
/// deploy runs into the page that ended the first.
pub async fn die(folder: &Path) {
    let (file, outside) = (folder.join("night.db"), Outside { folder: folder.to_owned() });
    let stands = async |forever: &Forever, id: &str, step: &str| {
        let at = async || forever.status(id).await.unwrap().step.is_some_and(|at| at.name == step);
        eventually(step, at).await;
    };
    if file.exists() {
        let forever = builder(&file, &outside).fiber::<report>().open().await.unwrap();
        let rendering = forever.fibers().filter(FiberFilter::new().key("page-3")).await.unwrap();
        stands(&forever, &rendering.fibers[0].id, "rasterise").await;
    } else {
        let forever = builder(&file, &outside).fiber::<last_deploy::report>().open().await.unwrap();
        let report = forever.spawn(last_deploy::report(9)).key("report-9").await.unwrap();
        let paying = forever.spawn(pay(349, "visa 4929 1234 5678 9012".into())).key("payment-7").await.unwrap();
        let rendering = forever.spawn(render(3)).key("page-3").await.unwrap();
        let vault: AgentHandle<Vault> = forever.agent("main");
        let sealing = vault.spawn(seal(4)).key("drawer-4").await.unwrap();
        stands(&forever, rendering.id(), "rasterise").await;
        stands(&forever, sealing.id(), "turn the key").await;
        eventually("the others", async || {
            let waits = forever.status(report.id()).await.unwrap().state == FiberState::Waiting;
            waits && !forever.ops(paying.id()).await.unwrap().is_empty()
        })
        .await;
    }
    println!("{STANDS}");
    std::future::pending::<()>().await;
}

async fn tonight(forever: &Forever) {
    for customer in ["ada", "grace", "edsger"] {
        forever.spawn(bill(customer.into())).key(format!("bill-{customer}")).await.unwrap();
    }
    forever.spawn(approve("order-5".into())).key("approval-5").await.unwrap();
    let chat: AgentHandle<Desk> = forever.agent("alan");
    for n in 1..3 {
        chat.submit(format!("question-{n}"), [UiMessage::user(format!("u{n}"), "Is it open?")]).await.unwrap();
    }
    forever.agent::<Janitor>("cellar").schedule_every(Duration::from_secs(1), "sweep", ()).await.unwrap();
    let rows = forever.spawn(import(12)).key("import-2").await.unwrap();
    for row in 0..12_u32 {
        forever.send(rows.id(), "row", &row).await.unwrap();
    }
    for order in ["order-8", "order-9"] {
        forever.spawn(ship(order.into())).key(format!("parcel-{order}")).await.unwrap().wait().await.unwrap_err();
    }
    eventually("ten faults", async || {
        let troubles = forever.view_troubles().await.unwrap();
        let has = |kind: &str, name: &str| {
            troubles.iter().any(|trouble| trouble.name == name && serde_json::to_value(trouble.kind).unwrap() == kind)
        };
        let schedules = forever.view_schedules(None, 9).await.unwrap();
        has("parked", "report")
            && has("retrying", "bill")
            && has("parked", "pay")
            && has("failed", "render")
            && has("turn", "desk")
            && has("interrupted", "seal")
            && has("failed", "ship")
            && schedules.iter().any(|schedule| schedule.error.is_some())
            && !forever.view_queues(10, 9).await.unwrap().is_empty()
    })
    .await;
}
