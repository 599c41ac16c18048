//! How a crate above the runtime reaches it from a builder, and from an open runtime.
use std::any::Any;

use crate::agent::AgentHandle;
use crate::api::builder::Builder;
use crate::api::forever::Forever;
use crate::layers::engine::EngineLink;
use crate::layers::layer::Layer;
use crate::runtime::link::Link;
use crate::store::AgentId;

/// The layer of this type of a builder, which is added if it is not there.
pub fn layer<L: Layer + Default>(builder: &mut Builder) -> &mut L {
    let at = builder.layers.iter().position(|layer| (&**layer as &dyn Any).is::<L>()).unwrap_or_else(|| {
        builder.layers.push(Box::new(L::default()));
        builder.layers.len() - 1
    });
    let layer: &mut dyn Any = &mut *builder.layers[at];
    layer.downcast_mut().expect("it is the layer of this type")
}

/// Link to an open runtime, which keeps it open.
pub fn engine_link(forever: &Forever) -> EngineLink {
    EngineLink::new(forever.exec_link())
}

/// Handle of an agent by the names of its class and its own, which does not keep the runtime open.
pub fn weak_agent<A>(forever: &Forever, class: &str, name: &str) -> AgentHandle<A> {
    AgentHandle::new(Link::from(&forever.agents), AgentId { class: class.to_owned(), name: name.to_owned() })
}
