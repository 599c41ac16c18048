//! Resources: values of the program that fibers take as `Res<T>`.
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// A resource of the runtime, found by its type: a client, a model, a configuration. Never
/// persisted; provided again on every resume.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::Res;
///
/// struct Greeting(&'static str);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// let forever = Forever::builder().in_memory().resource(Greeting("hello")).open().await?;
/// // `#[fiber] async fn greet(greeting: Res<Greeting>, ..)` takes it as an argument.
/// let said = forever
///     .spawn_closure("greet", |ctx| async move {
///         let greeting: Res<Greeting> = ctx.resource();
///         Ok::<_, forever::Error>(greeting.0.to_owned())
///     })
///     .await?;
/// assert_eq!(said, "hello");
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Res<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Res<T> {
    fn clone(&self) -> Self {
        Res(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Res<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: std::fmt::Debug + ?Sized> std::fmt::Debug for Res<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The resources of a runtime, by type.
#[derive(Clone, Default)]
pub(crate) struct Resources(Vec<Arc<dyn Any + Send + Sync>>);

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} resources", self.0.len())
    }
}

impl Resources {
    /// Adds a resource, replacing one of the same type.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.retain(|r| !r.is::<T>());
        self.0.push(Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Res<T>> {
        self.0.iter().find_map(|r| Arc::clone(r).downcast::<T>().ok()).map(Res)
    }
}

/// Collects the resources that a fiber needs and the runtime lacks.
#[doc(hidden)]
#[derive(Debug)]
pub struct Needs<'a> {
    resources: &'a Resources,
    /// Parameter name and type name of each missing resource.
    pub(crate) missing: Vec<(&'static str, &'static str)>,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(resources: &'a Resources) -> Self {
        Needs { resources, missing: Vec::new() }
    }

    pub fn resource<T: Send + Sync + 'static>(&mut self, parameter: &'static str) {
        if self.resources.get::<T>().is_none() {
            self.missing.push((parameter, std::any::type_name::<T>()));
        }
    }
}
