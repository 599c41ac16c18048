//! The layout of a fiber function, for the program.
use crate::frame::fiber::Fiber;
use crate::layout::spec::Layout;

/// The layout of a fiber: `forever::layout::of::<research>()`.
///
/// Keep its text under review, to see changes that strand running fibers before they are deployed.
/// Keep its JSON for [`Layout::can_resume`]:
///
/// ```no_run
/// # use forever_runtime as forever;
/// fn check<F: forever::fiber::Fiber>() -> Result<(), Box<dyn std::error::Error>> {
///     // insta::assert_snapshot!(forever::layout::of::<research>());
///     let deployed: forever::layout::Layout = serde_json::from_str(&std::fs::read_to_string("research.layout.json")?)?;
///     forever::layout::of::<F>().can_resume(&deployed)?;
///     Ok(())
/// }
/// ```
pub fn of<F: Fiber>() -> Layout {
    Layout::of(F::MACHINE)
}
