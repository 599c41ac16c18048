//! The layout of a fiber function, for the program.
use crate::frame::fiber::Fiber;
use crate::layout::spec::Layout;

/// The layout of a fiber: `forever::layout::<research>()`.
///
/// Keep its text under review, so that a change that stops running fibers from going on is seen
/// before it is deployed, and keep its JSON to ask [`Layout::can_resume`]:
///
/// ```no_run
/// # use forever_runtime as forever;
/// fn check<F: forever::Fiber>() -> Result<(), Box<dyn std::error::Error>> {
///     // insta::assert_snapshot!(forever::layout::<research>());
///     let deployed: forever::Layout = serde_json::from_str(&std::fs::read_to_string("research.layout.json")?)?;
///     forever::layout::<F>().can_resume(&deployed)?;
///     Ok(())
/// }
/// ```
pub fn layout<F: Fiber>() -> Layout {
    Layout::of(F::MACHINE)
}
