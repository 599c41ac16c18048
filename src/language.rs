//! What may be written in the body of a fiber.

/// Makes an `async fn` durable: it carries on in the middle after its process is gone.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn greet(ctx: &FiberContext, http: Res<Http>, name: String) -> anyhow::Result<String> {
///     let text = step!(http.get(&name).await?);
///     Ok(format!("{text}, {name}, from {}", ctx.id()))
/// }
///
/// struct Http;
///
/// impl Http {
///     async fn get(&self, name: &str) -> anyhow::Result<String> {
///         Ok(if name.is_empty() { "No one there".to_owned() } else { "Hello".to_owned() })
///     }
/// }
/// ```
///
/// The function becomes a fiber of its name: `greet(name)` no longer runs, it only says what is to
/// be run, and is handed to [`Forever::spawn`], [`Forever::run`], [`call!`] or [`spawn!`]. Register
/// it with `.fiber::<greet>()`.
///
/// # The head
///
/// - `ctx: &FiberContext` may come first: the fiber's id and the like.
/// - Parameters of type [`Res<T>`](crate::Res) are *resources* (clients, connections, settings):
///   they come from the runtime, by type, and are never saved.
/// - All others are *arguments*: owned values that serde can write and read, saved when the fiber
///   is spawned. Patterns are fine.
/// - It returns a `Result`. The `Ok` is saved; the error's text is what the fiber is known to have
///   failed with.
/// - Type parameters and `where` clauses are kept; lifetimes are not possible, as a fiber outlives
///   who started it.
///
/// # The body
///
/// The body is ordinary Rust, with cut points in it: [`step!`], [`steps!`], [`call!`], [`spawn!`],
/// [`wait!`], [`wait_all!`], [`sleep!`], [`sleep_until!`], [`recv!`] and [`select!`]. They stand
/// wherever an `.await` could, but for closures, `async` blocks and the arguments of other macros.
/// What comes after one needs the variables from before it: those that are used later are *kept*,
/// and must be something that serde can write and read. Plain borrows (`let y = &x;`,
/// `for q in &plan.questions`) are taken again instead, and `#[fresh] let client = connect();` is
/// made anew. What could not be resumed does not compile, and the error says what to write instead.
///
/// A local that is not needed any more is dropped at the next cut point. One that is never used
/// after its `let` is there for its destructor, so a cut point in its scope is an error, unless the
/// value could be saved: take a permit or a lock in the step that needs it, or `drop` it before.
///
/// ```compile_fail,E0277
/// # use forever::prelude::*;
/// # use std::sync::Arc;
/// # use tokio::sync::Semaphore;
/// #[fiber]
/// async fn import(slots: Res<Arc<Semaphore>>, files: Vec<String>) -> anyhow::Result<()> {
///     for file in &files {
///         let _permit = slots.acquire().await?; // `_permit` is still held at `step!(load)`, but ..
///         step!(load(file).await?);
///     }
///     Ok(())
/// }
/// # async fn load(_: &str) -> anyhow::Result<()> { Ok(()) }
/// ```
///
/// ```
/// # use forever::prelude::*;
/// # use std::sync::Arc;
/// # use tokio::sync::Semaphore;
/// #[fiber]
/// async fn import(slots: Res<Arc<Semaphore>>, files: Vec<String>) -> anyhow::Result<()> {
///     for file in &files {
///         step!("load", {
///             let _permit = slots.acquire().await?;
///             load(file).await?
///         });
///     }
///     Ok(())
/// }
/// # async fn load(_: &str) -> anyhow::Result<()> { Ok(()) }
/// ```
///
/// A `for` by value over a container or a range keeps the items that are left. Over a lazy
/// iterator, one that calls a closure, waits or never ends, it does not compile
/// ([`EagerIterator`](crate::EagerIterator)): collect its items first.
///
/// ```
/// # use forever::prelude::*;
/// #[fiber]
/// async fn total(prices: Vec<u32>) -> anyhow::Result<u32> {
///     let mut total = 0;
///     for price in prices.into_iter().map(|price| price * 2).collect::<Vec<_>>() {
///         total += step!(charge(price).await?);
///     }
///     Ok(total)
/// }
/// # async fn charge(price: u32) -> anyhow::Result<u32> { Ok(price) }
/// ```
///
/// Other attribute macros cannot wrap a fiber: what `#[tracing::instrument]` does is put into the
/// steps.
///
/// # Options
///
/// `#[fiber(name = "shop.checkout", version = 2)]`
///
/// - `name = ".."`: the stored name; the function's, if it is not given.
/// - `version = N`: says of two layouts that look alike that they are not.
/// - `max_recoveries = N`: how many deaths of its process a fiber may live through before it counts
///   as their cause.
/// - `source = false`: leaves the text of the function out of the program. It is recorded for the
///   inspector, with the lines of its cut points and locals; neither is part of the layout.
/// - `migrate = path`: a function from an old [`Snapshot`](crate::Snapshot) to one that fits this code.
/// - `crate = path`: where this crate is, if not at `::forever`.
///
/// # Secrets
///
/// `#[secret]` on an argument or a `let` keeps its value out of the inspector, the `forever` command
/// and the library's logs. It is stored like any other value, since the fiber needs it.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn sync(account: String, #[secret] token: String) -> anyhow::Result<usize> {
///     #[secret]
///     let session = step!(format!("{token} of {account}"));
///     let rows = step!("rows", session.len());
///     Ok(rows)
/// }
/// ```
///
/// Where an error, a result or a stash of the fiber repeats such a value it is replaced. A value that
/// the function computes from one is not known to be secret: mark it too.
///
/// [`Forever::spawn`]: crate::Forever::spawn
/// [`Forever::run`]: crate::Forever::run
pub use forever_macros::fiber;

/// One piece of work that is not repeated once it has finished.
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn checkout(shop: Res<Shop>, order: u32) -> anyhow::Result<String> {
///     let price = step!(shop.price(order).await?);
///     // A policy is made again after a resume, and can be shared by several steps.
///     let retry = Retry::times(3).backoff(Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60)));
///     let receipt = step!("charge", retry = retry, timeout = Duration::from_secs(30), |op| {
///         // The same id at each attempt and after each restart.
///         shop.charge(op.id(), price).await?
///     });
///     Ok(receipt)
/// }
///
/// struct Shop;
///
/// impl Shop {
///     async fn price(&self, order: u32) -> anyhow::Result<u32> {
///         Ok(order * 100)
///     }
///     async fn charge(&self, key: &str, cents: u32) -> anyhow::Result<String> {
///         Ok(format!("{key}: {cents}"))
///     }
/// }
/// ```
///
/// `step!(["name",] [option,]* body)`. The body is an expression or a block; it may `.await` and
/// use `?`, which leaves the fiber as always. Its value is the step's. When it has come, the
/// fiber's snapshot is replaced: a later run goes on behind the step. Until then a crash means that
/// the body runs again, so what it does outside must bear that: see [`Op::id`](crate::Op::id).
///
/// - `"name"` is the step's name in snapshots; without it, the name of the variable that it
///   initialises, or of the function that it calls.
/// - `retry =` [`Retry`](crate::Retry): how often an error of the body (through `?`) is followed by
///   another attempt. The body must not change the variables around it.
/// - `timeout =` [`Duration`](std::time::Duration): the longest that one attempt may take.
/// - `catch`: the value is a `Result<T, StepError>`, after all attempts. See
///   [`StepError`](crate::StepError) and below.
/// - `was = "old"`: the name that the step had, for snapshots from then.
/// - `effect`: what the body does outside must not happen twice. That it begins is stored before it
///   runs, and what it gave with the checkpoint, in the ledger that
///   [`Forever::ops`](crate::Forever::ops) gives; so its value must be something that serde can
///   write and read. When its outcome is known after a crash, the body is skipped, so it must not
///   change the variables around it.
/// - `key =` anything that serde can write, of an `effect`: part of its id. Met again at the same
///   place with another key while it is not settled, the fiber is parked.
/// - `on_unknown =` [`OnUnknown`](crate::OnUnknown), of an `effect`: what to do when it was begun,
///   and the process died, the `timeout` ended or the body lost track
///   ([`Op::unknown`](crate::Op::unknown)) before it had a value. Defaults to `OnUnknown::Park`:
///   the fiber is parked until a person calls [`Forever::resolve_op`](crate::Forever::resolve_op).
/// - `|op| body`: gives the body an [`&Op`](crate::Op): the step's id, its attempt, and a place for
///   what it has found so far.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn checkout(bank: Res<Bank>, order: String, cents: u32) -> anyhow::Result<u64> {
///     let check = OnUnknown::check(async |op| bank.find(op.id()).await);
///     let charge = step!("charge", effect, key = (&order, cents), on_unknown = check, |op| {
///         bank.charge(op.idempotency_key(), cents).await?
///     });
///     Ok(charge)
/// }
///
/// struct Bank;
///
/// impl Bank {
///     async fn charge(&self, key: &str, cents: u32) -> anyhow::Result<u64> {
///         anyhow::bail!("{key}: {cents}")
///     }
///     async fn find(&self, key: &str) -> anyhow::Result<Option<u64>> {
///         anyhow::bail!("{key}")
///     }
/// }
/// ```
///
/// # Errors as values
///
/// With `catch` an error does not leave the fiber. It is saved like any value, so a resumed fiber
/// takes the same branch:
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn answer(models: Res<Models>, question: String) -> anyhow::Result<String> {
///     let limit = Duration::from_secs(60);
///     match step!("ask", retry = Retry::times(3), timeout = limit, catch, models.large(&question).await?) {
///         Ok(answer) => Ok(answer),
///         Err(error) if error.is_timeout() => Ok(step!("fall back", models.small(&question).await?)),
///         // With its causes, as the error of the fiber.
///         Err(error) => Err(error.into()),
///     }
/// }
///
/// struct Models;
///
/// impl Models {
///     async fn large(&self, _: &str) -> anyhow::Result<String> {
///         anyhow::bail!("overloaded")
///     }
///     async fn small(&self, question: &str) -> anyhow::Result<String> {
///         Ok(question.to_uppercase())
///     }
/// }
/// ```
///
/// The error of an `effect` is recorded in the ledger as without `catch`. With `OnUnknown::Fail`,
/// an operation in doubt is an error too:
/// [`StepError::is_op_unknown`](crate::StepError::is_op_unknown). A panic is not caught; it fails
/// the fiber.
///
/// # Bodies that may be skipped or run again
///
/// The bodies of `effect` and of `retry` may read the variables around them, and an `effect`
/// without `retry` may move them. They cannot assign to them or borrow them mutably: the change
/// would be lost where the body is skipped, and made again where it is repeated. Give the step a
/// value and make the change after it; what is `#[fresh]` may be changed. A change behind a shared
/// reference (a `Mutex`, an atomic) cannot be seen by the compiler and is the program's own.
///
/// A step with `timeout` or `catch` alone runs its body once, so what the body has changed until it
/// ended is kept, as in the plain function.
pub use forever_macros::step;

/// Runs another fiber inline, as part of this one, its place kept in this one's snapshot.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn depth(tree: Vec<u32>, at: usize) -> anyhow::Result<u32> {
///     if at >= tree.len() {
///         return Ok(0);
///     }
///     let left = call!(depth(tree.clone(), 2 * at + 1))?;
///     let right = call!(depth(tree, 2 * at + 2))?;
///     Ok(1 + left.max(right))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let forever = Forever::builder().in_memory().fiber::<depth>().open().await?;
/// assert_eq!(forever.run(depth(vec![5, 3, 8, 1], 0)).await?, 3);
/// forever.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// The value is what the other fiber returns, a `Result` of its own types. After a restart the
/// fiber goes on in the middle of the call. Up to 200 calls may be under way inside one another;
/// one more fails the fiber. They take no more of the thread's stack than one does, and each
/// checkpoint writes what all of them keep. For a fiber that runs by itself beside this one, see
/// [`spawn!`].
pub use forever_macros::call;

/// Starts another fiber that runs by itself: once, however often this one is resumed.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn report(topics: Vec<String>) -> anyhow::Result<Vec<String>> {
///     let mut chapters = Vec::new();
///     for topic in topics {
///         chapters.push(spawn!(chapter(topic)));
///     }
///     let mut texts = Vec::new();
///     for chapter in wait_all!(chapters) {
///         texts.push(chapter?);
///     }
///     Ok(texts)
/// }
///
/// #[fiber]
/// async fn chapter(topic: String) -> anyhow::Result<String> {
///     Ok(step!(format!("All about {topic}")))
/// }
/// ```
///
/// The value is a [`FiberHandle`](crate::FiberHandle), which can be kept, sent, and waited for with [`wait!`].
pub use forever_macros::spawn;

/// Waits for a fiber.
///
/// The value is `Ok` with its result, or the [`FiberError`](crate::FiberError) that says how else it ended.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn parent(n: u32) -> anyhow::Result<u32> {
///     let handle = spawn!(child(n));
///     let own = step!(n + 1);
///     Ok(own + wait!(handle)?)
/// }
///
/// #[fiber]
/// async fn child(n: u32) -> anyhow::Result<u32> {
///     Ok(n * 2)
/// }
/// ```
///
/// The handle is taken by value or by reference. While it waits, this fiber is a row in the
/// database and nothing else.
pub use forever_macros::wait;

/// Waits for several fibers.
///
/// The value is a `Vec` of their results, in the order of the handles. See [`wait!`] and
/// [`spawn!`].
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn first_words(handles: Vec<FiberHandle<String>>) -> anyhow::Result<Vec<String>> {
///     let texts = wait_all!(&handles);
///     Ok(texts.into_iter().flatten().filter_map(|text| Some(text.split(' ').next()?.to_owned())).collect())
/// }
/// ```
pub use forever_macros::wait_all;

/// Waits for some time, also across restarts.
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn remind(mail: Res<Mail>, address: String) -> anyhow::Result<()> {
///     step!("first", mail.send(&address, "Welcome").await?);
///     sleep!(Duration::from_secs(3 * 24 * 60 * 60));
///     step!("second", mail.send(&address, "Still there?").await?);
///     Ok(())
/// }
///
/// struct Mail;
///
/// impl Mail {
///     async fn send(&self, address: &str, text: &str) -> anyhow::Result<()> {
///         anyhow::ensure!(!address.is_empty(), "no address for {text:?}");
///         Ok(())
///     }
/// }
/// ```
///
/// The end is fixed when the wait begins: a restart neither shortens it nor begins it anew, and one
/// that is over by then ends at once. While it waits, the fiber is a row in the database and
/// nothing else.
pub use forever_macros::sleep;

/// Waits until a time, also across restarts.
///
/// The time is anything that is `Into<SystemTime>`. See [`sleep!`].
///
/// ```
/// use std::time::SystemTime;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn publish(text: String, at: SystemTime) -> anyhow::Result<()> {
///     sleep_until!(at);
///     step!("publish", println!("{text}"));
///     Ok(())
/// }
/// ```
pub use forever_macros::sleep_until;

/// Waits for the next message of a topic.
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn refund(cents: u32) -> anyhow::Result<String> {
///     let approved: bool = recv!("approval");
///     if !approved {
///         let why: Option<String> = recv!("reason", timeout = Duration::from_secs(60 * 60));
///         return Ok(why.unwrap_or_else(|| "refused".to_owned()));
///     }
///     Ok(step!("pay", format!("{cents} paid back")))
/// }
/// ```
///
/// The type of the message is the one that is asked for here; with `timeout =` it is an `Option`,
/// `None` when the time is over. Each message is received once, in the order in which they were
/// sent. While it waits, the fiber is a row in the database and nothing else.
///
/// The topic may be computed (any `&str` or `String`), and there may be several (an array, a slice
/// or a `Vec`). Of several topics the value is the topic and the message, the oldest message first,
/// whichever topic it is of. A computed topic is computed once, when the wait begins.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn interview(questions: Vec<String>) -> anyhow::Result<Vec<String>> {
///     let mut answers = Vec::new();
///     for number in 0..questions.len() {
///         let answer: String = recv!(format!("answer-{number}"));
///         answers.push(answer);
///     }
///     let (verdict, by): (String, String) = recv!(["approve", "reject"], name = "verdict");
///     answers.push(format!("{verdict} by {by}"));
///     Ok(answers)
/// }
/// ```
///
/// - `timeout =` [`Duration`](std::time::Duration): how long it waits.
/// - `name = ".."`: the name of the wait in snapshots; without it, the name of the variable that it
///   initialises, or the topic.
/// - `was = "old"`: the name that it had.
pub use forever_macros::recv;

/// Waits for the first of several things, and runs the arm that belongs to it.
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn purchase(shop: Res<Shop>, order: u32) -> anyhow::Result<String> {
///     let quote = spawn!(cheapest(order));
///     let text = select! {
///         price = wait!(&quote) => step!("buy", shop.buy(order, price?).await?),
///         why: String = recv!("cancel") => return Ok(format!("cancelled: {why}")),
///         _ = sleep!(Duration::from_secs(24 * 60 * 60)) => {
///             step!("tell", shop.tell(order).await?);
///             "no quote within a day".to_owned()
///         }
///     };
///     Ok(text)
/// }
///
/// #[fiber]
/// async fn cheapest(order: u32) -> anyhow::Result<u32> {
///     Ok(order * 100)
/// }
///
/// struct Shop;
///
/// impl Shop {
///     async fn buy(&self, order: u32, cents: u32) -> anyhow::Result<String> {
///         Ok(format!("order {order} for {cents}"))
///     }
///     async fn tell(&self, order: u32) -> anyhow::Result<()> {
///         anyhow::ensure!(order > 0, "no such order");
///         Ok(())
///     }
/// }
/// ```
///
/// `select! { ["name",] [was = "old",] PATTERN [: TYPE] = WAIT => BODY, ..
/// }`, where a wait is a [`recv!`], [`sleep!`], [`sleep_until!`] or [`wait!`]. All of them begin
/// together: durations, topics and handles are evaluated once, in source order, when the `select!`
/// is reached. Which arm it is, with its value, is stored in one commit. Then the body of the arm
/// runs. It is code of the fiber like any other, with cut points, `?`, `return` and `break`, and
/// its value is that of the `select!`.
///
/// Of several arms that are ready the first in source order is taken. In a loop, a topic that never
/// runs dry therefore keeps those below it waiting. A message of an arm that was not taken stays in
/// its queue, a child goes on, and a sleep is forgotten. While it waits, the fiber is a row in the
/// database and nothing else.
pub use forever_macros::select;

/// Runs steps side by side.
///
/// Each result is stored when it arrives, and a resumed fiber runs only those that have none.
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn research(web: Res<Web>, topic: String) -> anyhow::Result<String> {
///     // A tuple of up to twelve.
///     let (news, books) = steps!(web.search("news", &topic).await?, web.search("books", &topic).await?);
///     // A `Vec`, in the order of the items, at most eight at a time.
///     let pages = steps!(for url in news.iter().chain(&books), limit = 8, retry = Retry::times(3), web.fetch(url).await?);
///     // A branch with options is written as a step.
///     let (cover, note) = steps!(
///         step!("cover", timeout = Duration::from_secs(30), catch, web.fetch("cover").await?),
///         step!("note", effect, |op| web.post(op.id(), &topic).await?),
///     );
///     Ok(cover.unwrap_or(note) + &pages.concat())
/// }
///
/// struct Web;
///
/// impl Web {
///     async fn search(&self, kind: &str, topic: &str) -> anyhow::Result<Vec<String>> {
///         Ok(vec![format!("https://{kind}.example/{topic}")])
///     }
///     async fn fetch(&self, url: &str) -> anyhow::Result<String> {
///         Ok(url.to_owned())
///     }
///     async fn post(&self, key: &str, text: &str) -> anyhow::Result<String> {
///         Ok(format!("{key}: {text}"))
///     }
/// }
/// ```
///
/// A branch is an expression that may `.await`, use `?` and read the fiber's variables; it cannot
/// change them, as it does not run again once its result is stored. The first error (through `?`)
/// is the fiber's, and the other branches are dropped; with `catch` each branch gives a `Result`,
/// and none ends the others. What is gone over is kept while the branches run, unless it is
/// borrowed from a variable that is.
///
/// # Branches with options
///
/// A branch takes the options of a [`step!`]:
/// `steps!(for item in items, limit = 8, retry = .., effect, |op| body)`, where they are evaluated
/// for each item and may name it, or `steps!(step!("law", retry = .., body), other)`. Each branch
/// has an operation of its own. In the ledger it is called `both[law]` (the name of the `steps!`
/// and of the branch) or `pages[3]` (the place of the item, from 0). Its id is the same in every
/// run, and the attempts of its `retry` survive a restart.
///
/// When the process dies in the body of an `effect`, its `on_unknown` decides about that branch
/// alone. Until it has decided, no other branch begins, and results that are stored stay. How an
/// `effect` ended is stored when its branch ends.
pub use forever_macros::steps;
