//! `select!`: waits for the first of several events.
//!
//! Input: the arms in source order, with deadlines and topics fixed when the wait began. Output: a
//! [`Choice`], the arm that was chosen and its value, saved under the name of the arm. The first
//! arm in source order that is ready is chosen. The other arms lose nothing: messages stay in their
//! queues, and children keep running.
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::frame::activation::Frame;
use crate::frame::codec::Codec;
use crate::frame::fiber::Value;
use crate::frame::locals::Unreadable;
use crate::frame::run::Run;
use crate::frame::saved::unreadable;
use crate::frame::topics::{Taken, Topics};
use crate::frame::waits::Deadline;
use crate::future::BoxFuture;
use crate::runtime::exit::Exit;
use crate::runtime::handle::{FiberError, FiberHandle};
use crate::store::Wait;

/// One arm of a `select!`.
#[doc(hidden)]
pub trait Arm: Send + Sync + 'static {
    type Value: Send;

    /// The value, if the arm is ready.
    fn ready<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Value>>;

    /// Adds the condition that wakes a fiber waiting for it.
    fn wait(&self, wait: &mut Wait);
}

/// `recv!`
#[doc(hidden)]
#[derive(Debug)]
pub struct OnMessage<K, T>(K, Codec<T>);

/// `recv!` with a timeout.
#[doc(hidden)]
#[derive(Debug)]
pub struct OnMessageUntil<K, T>(OnMessage<K, T>, Deadline);

/// `sleep!`
#[doc(hidden)]
#[derive(Debug)]
pub struct OnTime(Deadline);

/// `wait!`
#[doc(hidden)]
#[derive(Debug)]
pub struct OnEnd<T>(FiberHandle<T>);

#[doc(hidden)]
pub fn on_message<K, T>(topics: K, codec: Codec<T>) -> OnMessage<K, T> {
    OnMessage(topics, codec)
}

#[doc(hidden)]
pub fn on_message_until<K, T>(topics: K, deadline: Deadline, codec: Codec<T>) -> OnMessageUntil<K, T> {
    OnMessageUntil(on_message(topics, codec), deadline)
}

#[doc(hidden)]
pub fn on_time(deadline: Deadline) -> OnTime {
    OnTime(deadline)
}

#[doc(hidden)]
pub fn on_end<T>(handle: FiberHandle<T>) -> OnEnd<T> {
    OnEnd(handle)
}

impl<K: Topics, T: Send + 'static> OnMessage<K, T> {
    async fn take(&self, name: &'static str, run: &Run) -> Taken<ReceivedMessage<K::Received<Box<RawValue>>, T>> {
        let OnMessage(topics, codec) = self;
        run.takes(topics.fixed(), *codec);
        let (topic, value) = match run.take_message(name, topics, *codec).await {
            Taken::Message(topic, value) => (topic, value),
            Taken::Nothing => return Taken::Nothing,
            Taken::Closed => return Taken::Closed,
        };
        match codec.save(&value).and_then(|text| RawValue::from_string(text).map_err(|why| why.to_string())) {
            Ok(text) => {
                let message = ReceivedMessage { texts: K::received(&topic, text), value: Some(value) };
                Taken::Message(topic, message)
            }
            Err(why) => run.halt(Exit::failed(format!("a message to `{name}` on topic `{topic}` cannot be saved: {why}"))).await,
        }
    }
}

impl<K: Topics, T: Send + 'static> Arm for OnMessage<K, T>
where
    K::Received<Box<RawValue>>: Send,
{
    type Value = ReceivedMessage<K::Received<Box<RawValue>>, T>;

    fn ready<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Value>> {
        Box::pin(async move {
            match self.take(name, run).await {
                Taken::Message(_, message) => Some(message),
                Taken::Nothing => None,
                Taken::Closed => run.receives_on_closed(name, &self.0).await,
            }
        })
    }

    fn wait(&self, wait: &mut Wait) {
        wait.topics.extend(self.0.names().into_iter().map(str::to_owned));
    }
}

impl<K: Topics, T: Send + 'static> Arm for OnMessageUntil<K, T>
where
    K::Received<Box<RawValue>>: Send,
{
    type Value = ReceivedMessage<Option<K::Received<Box<RawValue>>>, T>;

    fn ready<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Value>> {
        Box::pin(async move {
            let nothing = ReceivedMessage { texts: None, value: None };
            match self.0.take(name, run).await {
                Taken::Message(_, message) => Some(ReceivedMessage { texts: Some(message.texts), value: message.value }),
                Taken::Closed => Some(nothing),
                Taken::Nothing => run.has_passed(self.1).then_some(nothing),
            }
        })
    }

    fn wait(&self, wait: &mut Wait) {
        self.0.wait(wait);
        OnTime(self.1).wait(wait);
    }
}

impl Arm for OnTime {
    type Value = ();

    fn ready<'a>(&'a self, _: &'static str, run: &'a Run) -> BoxFuture<'a, Option<()>> {
        let passed = run.has_passed(self.0);
        Box::pin(async move { passed.then_some(()) })
    }

    fn wait(&self, wait: &mut Wait) {
        wait.due_ms = [wait.due_ms, self.0.at_ms()].into_iter().flatten().min();
    }
}

impl<T: Value> Arm for OnEnd<T> {
    type Value = Result<T, FiberError>;

    fn ready<'a>(&'a self, _: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Value>> {
        Box::pin(run.end_of(&self.0))
    }

    fn wait(&self, wait: &mut Wait) {
        wait.fibers.push(self.0.id().to_owned());
        wait.any_fiber = true;
    }
}

/// What an arm has received: the stored texts, and the value of a message if there is one.
///
/// It is saved and read by its texts, whatever the type of the message, so that a type that cannot
/// be saved is reported by the codec of the cut point alone. What is read has no value until
/// [`Opened::opened`] gives it one.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound(serialize = "V: Serialize", deserialize = "V: Deserialize<'de>"))]
pub struct ReceivedMessage<V, T> {
    texts: V,
    #[serde(skip)]
    value: Option<T>,
}

impl<V: MessageShape, T> ReceivedMessage<V, T> {
    /// What the arm gives.
    pub fn taken(self) -> V::Of<T> {
        self.texts.with(self.value)
    }
}

/// The shape in which a message is received, with a stored text in the place of its value.
#[doc(hidden)]
pub trait MessageShape {
    /// The shape with a value.
    type Of<T>;

    fn text(&self) -> Option<&RawValue>;

    fn with<T>(self, value: Option<T>) -> Self::Of<T>;
}

impl MessageShape for Box<RawValue> {
    type Of<T> = T;

    fn text(&self) -> Option<&RawValue> {
        Some(self)
    }

    fn with<T>(self, value: Option<T>) -> T {
        value.expect("a message that was received or read has a value")
    }
}

impl MessageShape for (String, Box<RawValue>) {
    type Of<T> = (String, T);

    fn text(&self) -> Option<&RawValue> {
        self.1.text()
    }

    fn with<T>(self, value: Option<T>) -> (String, T) {
        (self.0, self.1.with(value))
    }
}

impl<V: MessageShape> MessageShape for Option<V> {
    type Of<T> = Option<V::Of<T>>;

    fn text(&self) -> Option<&RawValue> {
        self.as_ref().and_then(V::text)
    }

    fn with<T>(self, value: Option<T>) -> Option<V::Of<T>> {
        self.map(|texts| texts.with(value))
    }
}

/// A value of an arm, or of the chosen one of several, that is read by the codecs of the arms.
#[doc(hidden)]
pub trait Opened<C>: Sized {
    fn opened(self, codecs: C) -> Result<Self, String>;
}

impl<V: MessageShape, T> Opened<Codec<T>> for ReceivedMessage<V, T> {
    fn opened(self, codec: Codec<T>) -> Result<Self, String> {
        let value = self.texts.text().map(|text| codec.restore(text.get())).transpose().map_err(unreadable::<T>)?;
        Ok(ReceivedMessage { value, ..self })
    }
}

/// A value that is not a message has been read already.
impl<A> Opened<()> for A {
    fn opened(self, (): ()) -> Result<Self, String> {
        Ok(self)
    }
}

impl<A: Opened<C>, C> Opened<(C,)> for Last<A> {
    fn opened(self, (codec,): (C,)) -> Result<Self, String> {
        self.0.opened(codec).map(Last)
    }
}

impl<A: Opened<C>, C, R: Opened<D>, D> Opened<(C, D)> for Either<A, R> {
    fn opened(self, (codec, later): (C, D)) -> Result<Self, String> {
        match self {
            Either::This(value) => value.opened(codec).map(Either::This),
            Either::Later(value) => value.opened(later).map(Either::Later),
        }
    }
}

impl<N, C> Choice<N, C> {
    /// The choice with its value, read by the codecs of the arms.
    pub fn opened<D>(self, codecs: D) -> Result<Self, Unreadable>
    where
        C: Opened<D>,
    {
        let chosen = self.chosen.opened(codecs).map_err(|why| Unreadable(format!("what the `select!` has received {why}")))?;
        Ok(Choice { chosen, names: PhantomData })
    }

    /// As [`Choice::opened`], for a choice that only some cut points keep.
    pub fn maybe_opened<D>(choice: Option<Self>, codecs: D) -> Result<Option<Self>, Unreadable>
    where
        C: Opened<D>,
    {
        choice.map(|choice| choice.opened(codecs)).transpose()
    }
}

/// All arms: each with those that follow it, `(a, (b, (c,)))`.
#[doc(hidden)]
pub trait Arms: Send + Sync + 'static {
    type Chosen: Send;

    fn first<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Chosen>>;

    fn wait(&self, wait: &mut Wait);
}

impl<A: Arm> Arms for (A,) {
    type Chosen = Last<A::Value>;

    fn first<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Chosen>> {
        Box::pin(async move { self.0.ready(name, run).await.map(Last) })
    }

    fn wait(&self, wait: &mut Wait) {
        self.0.wait(wait);
    }
}

impl<A: Arm, R: Arms> Arms for (A, R) {
    type Chosen = Either<A::Value, R::Chosen>;

    fn first<'a>(&'a self, name: &'static str, run: &'a Run) -> BoxFuture<'a, Option<Self::Chosen>> {
        Box::pin(async move {
            match self.0.ready(name, run).await {
                Some(value) => Some(Either::This(value)),
                None => self.1.first(name, run).await.map(Either::Later),
            }
        })
    }

    fn wait(&self, wait: &mut Wait) {
        self.0.wait(wait);
        self.1.wait(wait);
    }
}

impl Frame {
    /// Waits for the first arm that is ready.
    pub fn select<N: ArmNames, A: Arms>(&self, arms: A) -> impl Future<Output = Choice<N, A::Chosen>> + Send + use<N, A> {
        let (run, name) = (Arc::clone(&self.run), self.machine.name);
        async move {
            let mut wait = Wait::default();
            arms.wait(&mut wait);
            loop {
                let news = run.news(&wait.fibers);
                if let Some(chosen) = arms.first(name, &run).await {
                    return Choice { chosen, names: PhantomData };
                }
                if wait == Wait::default() {
                    let why = format!("`{name}` was given no topic to receive on, and would wait for ever");
                    run.halt::<()>(Exit::failed(why)).await;
                }
                run.leave(wait.clone(), news).await;
            }
        }
    }
}

/// The value of an arm, or of a later one.
#[doc(hidden)]
#[derive(Debug)]
pub enum Either<A, R> {
    This(A),
    Later(R),
}

/// The value of the last arm.
#[doc(hidden)]
#[derive(Debug)]
pub struct Last<A>(pub A);

/// Names of the arms of a `select!` in snapshots, in source order.
#[doc(hidden)]
pub trait ArmNames: Send + Sync + 'static {
    const NAMES: &'static [&'static str];
}

/// The chosen arm with its value: `{"approval":true}` in snapshots.
#[doc(hidden)]
pub struct Choice<N, C> {
    pub chosen: C,
    names: PhantomData<fn() -> N>,
}

impl<N, C> fmt::Debug for Choice<N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an arm of `select!`")
    }
}

/// A chosen arm, by its place among the remaining ones.
#[doc(hidden)]
pub trait Chosen: Sized {
    fn place(&self) -> usize;

    fn save<M: SerializeMap>(&self, map: &mut M, name: &'static str) -> Result<(), M::Error>;

    fn restore<'de, M: MapAccess<'de>>(map: &mut M, place: usize) -> Result<Self, M::Error>;
}

impl<A: Serialize + DeserializeOwned> Chosen for Last<A> {
    fn place(&self) -> usize {
        0
    }

    fn save<M: SerializeMap>(&self, map: &mut M, name: &'static str) -> Result<(), M::Error> {
        map.serialize_entry(name, &self.0)
    }

    fn restore<'de, M: MapAccess<'de>>(map: &mut M, _: usize) -> Result<Self, M::Error> {
        map.next_value().map(Last)
    }
}

impl<A: Serialize + DeserializeOwned, R: Chosen> Chosen for Either<A, R> {
    fn place(&self) -> usize {
        match self {
            Either::This(_) => 0,
            Either::Later(later) => 1 + later.place(),
        }
    }

    fn save<M: SerializeMap>(&self, map: &mut M, name: &'static str) -> Result<(), M::Error> {
        match self {
            Either::This(value) => map.serialize_entry(name, value),
            Either::Later(later) => later.save(map, name),
        }
    }

    fn restore<'de, M: MapAccess<'de>>(map: &mut M, place: usize) -> Result<Self, M::Error> {
        match place.checked_sub(1) {
            None => map.next_value().map(Either::This),
            Some(later) => R::restore(map, later).map(Either::Later),
        }
    }
}

impl<N: ArmNames, C: Chosen> Serialize for Choice<N, C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        self.chosen.save(&mut map, N::NAMES[self.chosen.place()])?;
        map.end()
    }
}

impl<'de, N: ArmNames, C: Chosen> Deserialize<'de> for Choice<N, C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByName(PhantomData))
    }
}

struct ByName<N, C>(PhantomData<fn() -> (N, C)>);

impl<'de, N: ArmNames, C: Chosen> Visitor<'de> for ByName<N, C> {
    type Value = Choice<N, C>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an arm of a `select!` with its value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let name = map.next_key::<String>()?.ok_or_else(|| M::Error::custom("no arm of the `select!` is named"))?;
        let place = N::NAMES.iter().position(|there| *there == name);
        let place = place.ok_or_else(|| M::Error::custom(format!("the `select!` has no arm `{name}` any more")))?;
        let chosen = C::restore(&mut map, place)?;
        if map.next_key::<String>()?.is_some() {
            return Err(M::Error::custom("two arms of the `select!` are named"));
        }
        Ok(Choice { chosen, names: PhantomData })
    }
}
