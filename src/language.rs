//! What may be written in the body of a fiber.

/// Makes an `async fn` durable: after the death of its process it resumes in the middle.
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
/// The function becomes a fiber of its name. `greet(name)` no longer runs it, but describes a call,
/// to be passed to [`Forever::spawn`], [`Forever::run`], [`call!`] or [`spawn!`]. Register it with
/// `.fiber::<greet>()`.
///
/// # The head
///
/// - `ctx: &FiberContext` may come first: the fiber's id, name and runtime.
/// - Parameters of type [`Res<T>`](crate::fiber::Res) are *resources* (clients, connections, settings):
///   the runtime provides them by type, and they are never persisted.
/// - All others are *arguments*: owned values that serde can write and read, stored when the fiber
///   is spawned. Patterns are allowed.
/// - It returns a `Result`. The `Ok` value is stored, and so is the text of an error.
/// - Type parameters and `where` clauses are allowed. Lifetimes are not, since a fiber outlives its
///   caller.
///
/// # The body
///
/// The body is ordinary Rust with cut points: [`step!`], [`steps!`], [`call!`], [`spawn!`],
/// [`wait!`], [`wait_all!`], [`sleep!`], [`sleep_until!`], [`recv!`], [`try_recv!`], [`close!`] and
/// [`select!`]. They are allowed wherever an `.await` is, except in closures, `async` blocks and
/// the arguments of other macros. A variable that is used after a later cut point is *kept*: it is
/// stored in the snapshot, so serde must be able to write and read it. Plain borrows (`let y =
/// &x;`, `for q in &plan.questions`) are taken again instead, and `#[fresh] let client =
/// connect();` runs again after a resume. A block with a cut point in it may give a borrow (`let
/// best = if step!(..) { &a.title } else { &b.title };`): what it borrows from is kept to the end
/// of its scope. A body that could not be resumed does not compile, and the error says what to
/// write instead.
///
/// A local that is no longer needed is dropped at the next cut point. One that is never used after
/// its `let` exists for its destructor, so a cut point in its scope is an error, unless the value
/// could be stored. Take a permit or a lock inside the step that needs it, or `drop` it before.
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
/// A `for` by value over a container or a range keeps the remaining items. Over a lazy iterator
/// (one that calls a closure, waits or never ends) it does not compile
/// ([`EagerIterator`](crate::fiber::EagerIterator)): collect its items first.
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
/// Other attribute macros cannot wrap a fiber. Apply `#[tracing::instrument]` and similar ones to
/// the functions that its steps call.
///
/// # Options
///
/// `#[fiber(name = "shop.checkout", version = 2)]`
///
/// - `name = ".."`: the stored name. Defaults to the function's name.
/// - `version = N`: separates snapshots whose meaning has changed although their layout has not.
/// - `max_recoveries = N`: how many deaths of the process a fiber survives before it counts as
///   their cause.
/// - `source = false`: leaves the text of the function out of the program. It is recorded for the
///   inspector, with the lines of its cut points and locals; neither is part of the layout.
/// - `migrate = path`: a function from an old [`Snapshot`](crate::fiber::Snapshot) to one that fits this code.
/// - `crate = path`: path of this crate. Defaults to `::forever`.
///
/// # Secrets
///
/// `#[secret]` on an argument or a `let` keeps its value out of the inspector, the `forever`
/// command, logs, events, exports and the messages of panics. It is stored like any other value,
/// since the fiber needs it.
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn sync(account: String, #[secret] token: String) -> anyhow::Result<usize> {
///     let session = step!(format!("{token} of {account}"));
///     #[public]
///     let rows = step!("rows", session.len());
///     Ok(rows)
/// }
/// ```
///
/// What mentions a secret is one too, as `session` above: a variable, a pattern, the result of a
/// step, an argument of `call!`, all of a fiber that is spawned with it, the function's result.
/// `#[public]` says that a `let` is none.
///
/// The text of an error is hidden as a whole if the code that made it may hold a secret: that of a
/// step that mentions one, and of a function that has one. The program gets it by
/// [`FiberError::reason`](crate::fiber::FiberError::reason); another fiber does not.
///
/// Mark by hand what the function is given otherwise: the result of a `call!` or a child, a
/// message. A panic in a task or a thread that a step starts is printed as usual.
///
/// [`Forever::spawn`]: crate::Forever::spawn
/// [`Forever::run`]: crate::Forever::run
pub use forever_macros::fiber;

/// Runs work that is not repeated once it has finished.
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
/// `step!(["name",] [option,]* body)`. The body is an expression or a block. It may `.await` and
/// use `?`, which leaves the fiber as in any function. Its value is the value of the step. When the
/// body ends, a new snapshot replaces the last one, and a later run resumes after the step. If the
/// process crashes before that, the body runs again, so its outside effects must tolerate a
/// repetition: see [`Op::id`](crate::ops::Op::id).
///
/// - `"name"`: the step's name in snapshots. Defaults to the name of the variable that it
///   initialises, or of the function that it calls.
/// - `retry =` [`Retry`](crate::fiber::Retry): retries after an error of the body (through `?`). The body
///   must not change the variables around it. In a pause of more than 5 seconds the fiber leaves
///   memory, so the variables that the body uses must be savable: serde, `#[fresh]`, or a resource.
/// - `timeout =` [`Duration`](std::time::Duration): maximum time of one attempt.
/// - `catch`: the value is a `Result<T, StepError>`, after all attempts. See
///   [`StepError`](crate::fiber::StepError) and below.
/// - `was = "old"`: the former name of the step, for older snapshots.
/// - `effect`: the body must not run twice. Its start is stored before it runs, and its value with
///   the checkpoint, in the ledger of [`Forever::ops`](crate::Forever::ops); so serde must be able
///   to write and read the value. If its outcome is known after a crash, the body is skipped, so it
///   must not change the variables around it.
/// - `key =` any value that serde can write, for an `effect`: part of its id. If the same place is
///   reached with another key while the operation is not settled, the fiber is parked.
/// - `on_unknown =` [`OnUnknown`](crate::ops::OnUnknown), for an `effect`: policy for an operation in
///   doubt. It was started, but the process died, the `timeout` passed, or the body reported an
///   unknown outcome ([`Op::unknown`](crate::ops::Op::unknown)) before it had a value. Defaults to
///   `OnUnknown::Park`: the fiber is parked until a person calls
///   [`Forever::resolve_op`](crate::Forever::resolve_op).
/// - `|op| body`: passes an [`&Op`](crate::ops::Op) to the body, with the operation's id, its attempt,
///   and its stash.
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
/// With `catch` an error does not leave the fiber. It is stored like any value, so a resumed fiber
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
/// The ledger records the error of an `effect` as without `catch`. With `OnUnknown::Fail`, an
/// operation in doubt is an error too:
/// [`StepError::is_op_unknown`](crate::fiber::StepError::is_op_unknown). A panic is not caught; it fails
/// the fiber.
///
/// # Bodies that may be skipped or run again
///
/// The bodies of `effect` and of `retry` may read the variables around them, and an `effect`
/// without `retry` may move them. They cannot assign to them or borrow them mutably: the change
/// would be lost when the body is skipped, and repeated when it runs again. Return a value from the
/// step and make the change after it. Variables with `#[fresh]` may be changed. The compiler cannot
/// see a change behind a shared reference (a `Mutex`, an atomic); the program is responsible for
/// it.
///
/// A step with only `timeout` or `catch` runs its body once, so changes that the body made before
/// it ended are kept, as in a plain function.
pub use forever_macros::step;

/// Runs another fiber inline, with its snapshot nested in this fiber's.
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
/// The value is the `Result` of the other fiber, with its own types. After a restart the fiber
/// resumes in the middle of the call. Up to 200 calls may be nested; one more fails the fiber.
/// Nested calls need no more of the thread's stack than one, but each checkpoint writes the locals
/// of all of them. For a fiber that runs concurrently with this one, see [`spawn!`].
pub use forever_macros::call;

/// Spawns another fiber, which runs concurrently: once, however often this one is resumed.
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
/// The value is a [`FiberHandle`](crate::fiber::FiberHandle). It can be kept, sent, and awaited with
/// [`wait!`].
pub use forever_macros::spawn;

/// Waits for a fiber.
///
/// The value is `Ok` with its result, or a [`FiberError`](crate::fiber::FiberError) if it has none.
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
/// The handle is taken by value or by reference. While it waits, this fiber is only a row in the
/// database.
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

/// Waits for a duration, also across restarts.
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
/// The deadline is fixed when the wait begins: a restart neither shortens nor restarts it, and a
/// wait whose deadline has passed ends at once. While it waits, the fiber is only a row in the
/// database.
pub use forever_macros::sleep;

/// Waits until a point in time, also across restarts.
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
/// The type of the message is the type of the variable. With `timeout =` it is an `Option`, `None`
/// when the time has passed. Each message is received once, in the order of the sends. While it
/// waits, the fiber is only a row in the database.
///
/// The topic may be computed (any `&str` or `String`), and there may be several (an array, a slice
/// or a `Vec`). With several topics the value is the topic and the message, the oldest message
/// first across all topics. A computed topic is computed once, when the wait begins.
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
/// - `timeout =` [`Duration`](std::time::Duration): maximum time of the wait.
/// - `name = ".."`: the name of the wait in snapshots. Defaults to the name of the variable that it
///   initialises, or to the topic.
/// - `was = "old"`: its former name.
///
/// On a topic that the fiber has [closed](close!) no message can arrive: with `timeout =` the value
/// is `None` at once, and without it the fiber fails.
pub use forever_macros::recv;

/// Receives the next message of a topic if one is there, without waiting; only in a
/// [`#[fiber]`](macro@fiber).
///
/// ```
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn report(pages: u32) -> anyhow::Result<String> {
///     let mut written = Vec::new();
///     for page in 0..pages {
///         let note: Option<String> = try_recv!("note");
///         written.push(step!("write", format!("page {page} {}", note.unwrap_or_default())));
///     }
///     Ok(written.join("\n"))
/// }
/// ```
///
/// The value is an `Option` of the message, `None` if none has arrived. As with [`recv!`], each
/// message is received once, and its consumption is part of the checkpoint. The topic may be
/// computed, and there may be several. Options: `name` and `was`.
pub use forever_macros::try_recv;

/// Closes a topic, and hands over the messages that were not received; only in a
/// [`#[fiber]`](macro@fiber).
///
/// ```
/// use std::time::Duration;
///
/// use forever::prelude::*;
///
/// #[fiber]
/// async fn collects() -> anyhow::Result<Vec<String>> {
///     let mut orders: Vec<String> = Vec::new();
///     while let Some(order) = recv!("order", timeout = Duration::from_secs(3600)) {
///         orders.push(order);
///     }
///     // One may have been sent since the hour was over.
///     let late: Vec<String> = close!("order");
///     orders.extend(late);
///     Ok(orders)
/// }
/// ```
///
/// The topic is closed by the checkpoint before the value is read: from then on
/// [`send`](crate::Forever::send) answers an error of kind
/// [`TopicClosed`](crate::ErrorKind::TopicClosed), except for a message id that was accepted before.
/// So no message comes between the last one of the value and the end of the fiber. A message that
/// cannot be read as the type parks the fiber before any is consumed.
///
/// A topic stays closed for the rest of the fiber, and in a fork of it. A restart opens it again.
/// The topic may be computed. Options: `name` and `was`.
pub use forever_macros::close;

/// Waits for the first of several events, and runs its arm.
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
/// `select! { ["name",] [was = "old",] PATTERN [: TYPE] = WAIT => BODY, .. }`, where a wait is a
/// [`recv!`], [`sleep!`], [`sleep_until!`] or [`wait!`]. All waits begin together: durations,
/// topics and handles are evaluated once, in source order, when the `select!` is reached. The
/// chosen arm is stored with its value, in one commit. Then its body runs. The body is code of the
/// fiber like any other, with cut points, `?`, `return` and `break`, and its value is that of the
/// `select!`.
///
/// Of several arms that are ready the first in source order is chosen. So in a loop, a topic that
/// always has messages starves the arms below it. A message of an arm that was not chosen stays in
/// its queue, a child keeps running, and a sleep ends. While it waits, the fiber is only a row in
/// the database.
pub use forever_macros::select;

/// Runs steps concurrently.
///
/// Each result is stored when it arrives. A resumed fiber runs only the branches without a result.
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
/// A branch is an expression that may `.await`, use `?` and read the fiber's variables. It cannot
/// change them, since it does not run again once its result is stored. The first error (through
/// `?`) leaves the fiber, and the other branches are dropped; with `catch` each branch returns a
/// `Result`, and none ends the others. The items are kept while the branches run, unless they are
/// borrowed from a variable that is kept.
///
/// # Branches with options
///
/// A branch takes the options of a [`step!`]:
/// `steps!(for item in items, limit = 8, retry = .., effect, |op| body)`, where they are evaluated
/// for each item and may use it, or `steps!(step!("law", retry = .., body), other)`. Each branch
/// has an operation of its own. Its name in the ledger is `both[law]` (the names of the `steps!`
/// and of the branch) or `pages["law"]` (the JSON of the item). Its id is the same in every
/// run, and the attempts of its `retry` survive a restart.
///
/// If the process dies in the body of an `effect`, its `on_unknown` policy decides about that
/// branch alone. Until then no other branch begins, and stored results stay. The outcome of an
/// `effect` is stored when its branch ends.
pub use forever_macros::steps;
