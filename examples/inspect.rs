//! The inspector over a small company of agents, some of which are in trouble.
//!
//!     cargo run -p examples-http --example inspect                  http://127.0.0.1:7117
//!     cargo run -p examples-http --example inspect -- 8080 shop.db  another port, a kept file
//!
//! Ten faults are seeded, each for another remedy: a limit that is too low, a payment of unknown
//! outcome, a report that was parked by a deploy, an order that waits for a person, a notice that
//! is retried against a dead server, an approval that cannot be read, an invoice with a wrong rate,
//! deliveries that failed while the warehouse was closed, a hiring that hangs on one of its checks,
//! and a quote from an old catalogue. The page shows what is wrong, and repairs it. So does the
//! command `forever`; the guide has both ways for each ("Inspector and command line").
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forever::BoxError;
use forever::agent::Agent;
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, Turn};
use forever::inspect::Inspector;
use forever::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// What agents of the company share.
struct Company {
    /// The most that an order may cost. Too low: an operator raises it with the program's own
    /// means.
    limit: Arc<Mutex<u64>>,
    /// Whether the bank answers.
    bank_answers: bool,
    /// Whether the warehouse takes deliveries.
    warehouse_is_open: bool,
    /// What there is to buy, with its price.
    catalogue: &'static [(&'static str, u64)],
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    price: u64,
    customer: String,
}

/// Buys what was ordered: checks the limit, asks a person, and pays once.
#[fiber]
async fn purchase(company: Res<Company>, order: Order, #[secret] card: String) -> anyhow::Result<String> {
    let limit = step!("check limit", *company.limit.lock().await);
    // Wrong for large orders: the limit is in cents, and prices are in whole units.
    step!("within limit", within(limit, order.price)?);
    let approved: bool = recv!("approval");
    if !approved {
        return Ok(format!("{} was not approved", order.item));
    }
    let receipt = step!("charge", effect, |op| charge(&company, op.id(), &card, order.price).await?);
    let notice = format!("{}: {} for {}", order.customer, order.item, receipt);
    step!("notify", company_mail(&notice).await?);
    Ok(receipt)
}

fn within(limit: u64, price: u64) -> anyhow::Result<()> {
    anyhow::ensure!(price <= limit, "the order costs {price}, and the limit is {limit}");
    Ok(())
}

/// Pays. The bank of the last process never answered: whether it has paid is unknown.
async fn charge(company: &Company, id: &str, card: &str, price: u64) -> anyhow::Result<String> {
    if !company.bank_answers {
        std::future::pending::<()>().await;
    }
    let (receipt, last) = (id.get(..6).unwrap_or(id), card.get(card.len() - 4..).unwrap_or(card));
    Ok(format!("receipt {receipt} for {price} by card {last}"))
}

async fn company_mail(notice: &str) -> anyhow::Result<u64> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(notice.len() as u64)
}

/// Tells a customer, through a server that is down.
#[fiber]
async fn notify(address: String, text: String) -> anyhow::Result<u16> {
    let body = serde_json::json!({ "to": address, "text": text });
    let status = step!(
        "post",
        retry = Retry::times(1_000).backoff(Backoff::exponential(Duration::from_secs(2), Duration::from_secs(60))),
        post(&address, &body).await?
    );
    Ok(status)
}

async fn post(address: &str, body: &serde_json::Value) -> anyhow::Result<u16> {
    let length = body.to_string().len();
    // Nothing listens on port 9.
    match tokio::net::TcpStream::connect("127.0.0.1:9").await {
        Ok(_) => Ok(200),
        Err(why) => Err(anyhow::Error::from(why).context(format!("cannot send {length} bytes to {address}"))),
    }
}

/// Reads sources one by one, and calls another function for each.
#[fiber]
async fn research(topic: String) -> anyhow::Result<Vec<String>> {
    let questions = step!(plan(&topic).await?);
    let mut notes = Vec::new();
    for question in questions {
        let hits = step!("search", search(&question).await?);
        if hits.is_empty() {
            continue;
        }
        let note = call!(summarize(question, hits))?;
        notes.push(note);
    }
    Ok(notes)
}

/// Reads a mailbox page by page: what it finds is a stream, and how far it is its progress.
#[fiber]
async fn digest(ctx: &FiberContext, pages: u32) -> anyhow::Result<u32> {
    let found = ctx.stream::<String>("subjects");
    let mut mails = 0;
    for page in 1..=pages {
        mails += step!("read page", {
            let subjects = read_page(page).await?;
            subjects.iter().try_for_each(|subject| found.send(subject))?;
            u32::try_from(subjects.len())?
        });
        ctx.set_progress(&format!("{page} of {pages} pages"))?;
    }
    Ok(mails)
}

async fn read_page(page: u32) -> anyhow::Result<Vec<String>> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok((1..4).map(|n| format!("mail {n} of page {page}")).collect())
}

/// Asks a model twice. A function that is called has its frame in the snapshot of its caller.
#[fiber]
async fn summarize(question: String, hits: Vec<String>) -> anyhow::Result<String> {
    let draft = step!(ask(&format!("{question} {}", hits.join(" "))).await?);
    let answer = step!("polish", ask(&draft).await?);
    Ok(answer)
}

async fn plan(topic: &str) -> anyhow::Result<Vec<String>> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(["What is", "Who uses", "What can fail in", "How fast is", "Where next for"]
        .iter()
        .map(|start| format!("{start} {topic}?"))
        .collect())
}

async fn search(question: &str) -> anyhow::Result<Vec<String>> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok((1..4).map(|n| format!("source {n} on {question}")).collect())
}

async fn ask(prompt: &str) -> anyhow::Result<String> {
    tokio::time::sleep(Duration::from_secs(4)).await;
    Ok(format!("{} words", prompt.split(' ').count()))
}

/// Hires a person: three checks side by side, as fibers of their own.
#[fiber]
async fn hire(name: String) -> anyhow::Result<usize> {
    let mut checks = Vec::new();
    for what in ["papers", "bank", "desk"] {
        let check = spawn!(check(format!("{what} of {name}")));
        checks.push(check);
    }
    let done = wait_all!(checks);
    Ok(done.len())
}

/// Checks one thing. Only a call tells about the bank: its answer is a message.
#[fiber]
async fn check(what: String) -> anyhow::Result<String> {
    if what.starts_with("bank") {
        let answer: String = recv!("answer");
        return Ok(format!("{what}: {answer}"));
    }
    let found = step!("look up", format!("{what}: in order"));
    Ok(found)
}

/// Bills an amount, with the tax of the country.
#[fiber]
async fn invoice(customer: String, net: u64, country: String) -> anyhow::Result<String> {
    let rate = step!("tax rate", tax(&country));
    let gross = step!("total", net + net * rate / 100);
    Ok(format!("{customer} pays {gross}, with {rate} % of tax"))
}

/// Wrong for Germany: that is the lower rate, which is for books.
fn tax(country: &str) -> u64 {
    if country == "DE" { 7 } else { 20 }
}

/// Delivers goods to the warehouse.
#[fiber]
async fn deliver(company: Res<Company>, goods: String) -> anyhow::Result<String> {
    let packed = step!("pack", format!("a box of {goods}"));
    let place = step!("hand over", hand_over(&company, &packed)?);
    Ok(place)
}

fn hand_over(company: &Company, parcel: &str) -> anyhow::Result<String> {
    anyhow::ensure!(company.warehouse_is_open, "the warehouse is closed");
    Ok(format!("{parcel} is on shelf {}", parcel.len()))
}

/// Quotes a price, from the catalogue of the day on which it began.
#[fiber]
async fn quote(company: Res<Company>, item: String) -> anyhow::Result<u64> {
    let catalogue = step!("read catalogue", prices(&company));
    let price = step!("find price", price_of(&catalogue, &item)?);
    Ok(price)
}

fn prices(company: &Company) -> Vec<(String, u64)> {
    company.catalogue.iter().map(|(item, price)| ((*item).to_owned(), *price)).collect()
}

fn price_of(catalogue: &[(String, u64)], item: &str) -> anyhow::Result<u64> {
    let found = catalogue.iter().find(|(name, _)| name == item);
    found.map(|(_, price)| *price).ok_or_else(|| anyhow::anyhow!("the catalogue has no {item}"))
}

/// Answers customers, in words that a model would find.
struct HelpDesk;

impl Agent for HelpDesk {
    const CLASS: &'static str = "help-desk";
    type State = ();
}

impl ChatAgent for HelpDesk {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let question = turn.messages().last().map(UiMessage::text).unwrap_or_default();
        if question.contains("refund") {
            return Err("no model may decide about refunds".into());
        }
        turn.write(Chunk::text_start("text")).await?;
        for word in ["It ", "is ", "on ", "its ", "way."] {
            turn.write(Chunk::text_delta("text", word)).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        turn.write(Chunk::text_end("text")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

/// The report as the last deploy had it, and as this one has it: the step it stood at is gone.
mod last_deploy {
    use super::*;

    #[fiber]
    pub async fn report(month: u32) -> anyhow::Result<u64> {
        let rows = step!("read rows", month * 100);
        let signed: bool = recv!("signature");
        let filed = step!("file", u64::from(signed));
        Ok(u64::from(rows) + filed)
    }
}

#[fiber]
async fn report(month: u32) -> anyhow::Result<u64> {
    let table = step!("read table", u64::from(month) * 100);
    let archived = step!("archive", table + 1);
    Ok(archived)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().map_or(Ok(7117), |port| port.parse())?;
    let folder = tempfile::tempdir()?;
    let file = arguments.next().map_or_else(|| folder.path().join("company.db"), Into::into);
    let is_new = !file.exists();
    if is_new {
        last_week(&file).await?;
    }
    let limit = Arc::new(Mutex::new(500));
    let company =
        Company { limit: Arc::clone(&limit), bank_answers: true, warehouse_is_open: true, catalogue: &[("pen", 2), ("lamp", 45)] };
    let forever = Forever::builder()
        .sqlite(&file)
        .resource(company)
        .fiber::<purchase>()
        .fiber::<notify>()
        .fiber::<research>()
        .fiber::<digest>()
        .fiber::<hire>()
        .fiber::<check>()
        .fiber::<invoice>()
        .fiber::<deliver>()
        .fiber::<quote>()
        .fiber::<report>()
        .chat_agent(|_| HelpDesk)
        .open()
        .await?;
    if is_new {
        today(&forever, &limit).await?;
    }
    // The command line: `forever company.db ls`.
    let (of_socket, beside) = (Inspector::new(&forever), file.clone());
    let socket = tokio::spawn(async move { of_socket.listen_beside(beside).await });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("inspector: http://{}/\nfile: {}", listener.local_addr()?, file.display());
    let page = Inspector::new(&forever).allow_actions().serve(listener);
    tokio::select! {
        () = page => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    forever.close().await?;
    socket.await??;
    Ok(())
}

/// The process before this one: it dies while it pays, leaves a report to the next deploy, and had
/// an old catalogue and a closed warehouse.
async fn last_week(file: &Path) -> anyhow::Result<()> {
    let company = Company { limit: Arc::new(Mutex::new(500)), bank_answers: false, warehouse_is_open: false, catalogue: &[("pen", 2)] };
    let forever = Forever::builder()
        .sqlite(file)
        .resource(company)
        .fiber::<purchase>()
        .fiber::<invoice>()
        .fiber::<deliver>()
        .fiber::<quote>()
        .fiber::<last_deploy::report>()
        .open()
        .await?;
    for goods in ["paper", "ink", "glue", "string", "tape", "chalk"] {
        forever.spawn(deliver(goods.into())).key(format!("delivery-{goods}")).await?.wait().await.unwrap_err();
    }
    forever.spawn(quote("lamp".into())).key("quote-8").await?.wait().await.unwrap_err();
    forever.spawn(invoice("Konrad".into(), 200, "DE".into())).key("invoice-5").await?.wait().await?;
    let payment = forever.spawn(purchase(order("printer", 349, "Ada"), "4929 1234 5678 9012".into())).key("order-1041").await?;
    let report = forever.spawn(last_deploy::report(9)).key("report-9").await?;
    forever.send(payment.id(), "approval", &true).await?;
    // Until the bank was asked, and the report waits for its signature.
    while forever.ops(payment.id()).await?.is_empty() || forever.status(report.id()).await?.wait.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(forever.close().deadline(Duration::ZERO).await?)
}

fn order(item: &str, price: u64, customer: &str) -> Order {
    Order { item: item.into(), price, customer: customer.into() }
}

/// What the company begins today.
async fn today(forever: &Forever, limit: &Mutex<u64>) -> anyhow::Result<()> {
    // Orders wait for it, until all are placed.
    let held = limit.lock().await;
    for (key, order) in [
        ("order-1042", order("desk", 640, "Grace")),
        ("order-1043", order("server", 2_400, "Alan")),
        ("order-1044", order("keyboard", 89, "Barbara")),
        ("order-1045", order("chair", 210, "Edsger")),
        ("order-1046", order("lamp", 45, "Radia")),
    ] {
        let metadata = serde_json::json!({ "customer": order.customer, "team": "office" });
        let placed = forever.spawn(purchase(order, "4929 0000 1111 2222".into())).key(key).metadata(&metadata).await?;
        if key == "order-1046" {
            // A form sends a word where the program reads a flag. Once it waits, a send is refused.
            forever.send(placed.id(), "approval", "yes").await?;
        }
    }
    drop(held);
    forever.spawn(notify("ada@example.com".into(), "Your printer is on its way.".into())).key("notice-77").await?;
    forever.spawn(research("durable execution".into())).key("research-12").await?;
    forever.spawn(digest(40)).key("digest-4").await?;
    forever.spawn(hire("Grace".into())).key("hire-3").await?;
    for (customer, question) in [("ada", "Where is my printer?"), ("grace", "I want a refund.")] {
        forever.agent::<HelpDesk>(customer).submit("question-1", [UiMessage::user("1", question)]).await?;
    }
    Ok(())
}
