//! Fibers written by hand, the way the macro writes them.
use std::future::Future;

use forever_runtime::__private::{Arguments, Cut, CutKind, END, Frame, Local, LocalRole, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext};

use crate::support::Probe;

pub const fn local(name: &'static str) -> Local {
    Local { name, of: 1, was: None, result: false, role: LocalRole::Value, why: "used later" }
}

pub const fn cut(name: &'static str, kind: CutKind, locals: &'static [Local], next: &'static [u32]) -> Cut {
    Cut {
        name,
        explicit: true,
        of: 1,
        body: "",
        was: None,
        kind,
        effect: false,
        decides: false,
        wraps: "",
        locals,
        branches: &[],
        topics: &[],
        next,
        line: 0,
    }
}

pub const fn machine(name: &'static str, arguments: &'static [&'static str], cuts: &'static [Cut]) -> Machine {
    Machine { name, version: 0, max_recoveries: None, arguments, cuts, first: &[0], topics: &[], migrate: None, secrets: &[], source: None }
}

/// Three steps named by a label; gives the sum of their values.
pub struct Three {
    pub label: String,
}

pub fn three(label: &str) -> Three {
    Three { label: label.to_owned() }
}

const KEPT: &[Local] = &[local("label"), local("total")];
static THREE: Machine = machine(
    "three",
    &["label"],
    &[cut("one", CutKind::Step, KEPT, &[1]), cut("two", CutKind::Step, KEPT, &[2]), cut("three", CutKind::Step, KEPT, &[END])],
);

impl Fiber for Three {
    type Output = u64;
    type Error = String;
    const MACHINE: &'static Machine = &THREE;

    fn needs(needs: &mut Needs<'_>) {
        needs.resource::<Probe>("probe");
    }

    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(call, save) => {
                save.put("label", &call.label);
                Ok(None)
            }
            Arguments::Load(saved) => Ok(Some(Three { label: saved.get("label")? })),
        }
    }

    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<u64, String>> + Send + 'run {
        async move {
            let probe = ctx.resource::<Probe>();
            let (label, mut total) = match start {
                Some(call) => (call.label, 0_u64),
                None => frame.restore(|l| Ok((l.get::<String>("label")?, l.get::<u64>("total")?))).await,
            };
            for (cut, step) in [(0, "one"), (1, "two"), (2, "three")] {
                if frame.past(cut) {
                    continue;
                }
                if frame.running() {
                    total += probe.step(&format!("{label}.{step}")).await?;
                    frame
                        .checkpoint(cut, |save| {
                            save.put("label", &label);
                            save.put("total", &total);
                        })
                        .await;
                } else {
                    frame.arrive(cut).await;
                }
            }
            probe.step(&format!("{label}.end")).await?;
            Ok(total)
        }
    }
}

/// Calls [`Three`] inline between two steps of its own.
pub struct Outer {
    pub label: String,
}

static OUTER: Machine = machine(
    "outer",
    &["label"],
    &[
        cut("before", CutKind::Step, &[local("label")], &[1]),
        cut(
            "three",
            CutKind::Call,
            &[local("label"), Local { name: "sum", of: 1, was: None, result: true, role: LocalRole::Value, why: "used later" }],
            &[2],
        ),
        cut("after", CutKind::Step, &[local("sum")], &[END]),
    ],
);

impl Fiber for Outer {
    type Output = u64;
    type Error = String;
    const MACHINE: &'static Machine = &OUTER;

    fn needs(needs: &mut Needs<'_>) {
        needs.resource::<Probe>("probe");
    }

    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(call, save) => {
                save.put("label", &call.label);
                Ok(None)
            }
            Arguments::Load(saved) => Ok(Some(Outer { label: saved.get("label")? })),
        }
    }

    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<u64, String>> + Send + 'run {
        async move {
            let probe = ctx.resource::<Probe>();
            let mut label = start.map(|call| call.label);
            let mut sum = None;
            if !frame.past(0) {
                if let Some(label) = &label {
                    probe.step(&format!("{label}.before")).await?;
                    frame.checkpoint(0, |save| save.put("label", label)).await;
                } else {
                    label = Some(frame.restore(|l| l.get("label")).await);
                    frame.arrive(0).await;
                }
            }
            if !frame.past(1) {
                if frame.calls(1) {
                    let start = frame.running();
                    if !start {
                        label = Some(frame.restore(|l| l.get("label")).await);
                    }
                    let kept = label.clone().unwrap();
                    let call = start.then(|| Three { label: format!("{kept}.inner") });
                    sum = Some(frame.call(1, call, ctx, Some("sum"), |save| save.put("label", &kept)).await?);
                } else {
                    label = Some(frame.restore(|l| l.get("label")).await);
                    sum = Some(frame.restore(|l| l.get("sum")).await);
                    frame.arrive(1).await;
                }
            }
            if frame.running() {
                let label = label.unwrap();
                probe.step(&format!("{label}.after")).await?;
                frame.checkpoint(2, |save| save.put("sum", &sum.unwrap())).await;
            } else {
                sum = Some(frame.restore(|l| l.get("sum")).await);
                frame.arrive(2).await;
            }
            Ok(sum.unwrap())
        }
    }
}

/// Keeps a text of a given size across a step.
pub struct Big {
    pub bytes: usize,
}

static BIG: Machine = machine("big", &["bytes"], &[cut("fill", CutKind::Step, &[local("text")], &[END])]);

impl Fiber for Big {
    type Output = usize;
    type Error = String;
    const MACHINE: &'static Machine = &BIG;

    fn needs(needs: &mut Needs<'_>) {
        needs.resource::<Probe>("probe");
    }

    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(call, save) => {
                save.put("bytes", &call.bytes);
                Ok(None)
            }
            Arguments::Load(saved) => Ok(Some(Big { bytes: saved.get("bytes")? })),
        }
    }

    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<usize, String>> + Send + 'run {
        async move {
            let probe = ctx.resource::<Probe>();
            let text = if let Some(call) = start {
                probe.step("big.fill").await?;
                let text: String = (0..call.bytes).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap())).collect();
                frame.checkpoint(0, |save| save.put("text", &text)).await;
                text
            } else {
                let text = frame.restore(|l| l.get::<String>("text")).await;
                frame.arrive(0).await;
                text
            };
            probe.step("big.end").await?;
            assert!(text.bytes().enumerate().all(|(n, b)| usize::from(b - b'a') == n % 26));
            Ok(text.len())
        }
    }
}

/// Implements `Fiber` for a function of one argument without resources that only returns, or fails.
macro_rules! plain {
    ($type:ident, $name:literal, $arg:ident: $arg_type:ty, $output:ty, $error:ty, $body:expr) => {
        pub struct $type {
            pub $arg: $arg_type,
        }

        impl Fiber for $type {
            type Output = $output;
            type Error = $error;
            const MACHINE: &'static Machine = {
                static MACHINE: Machine = Machine { first: &[], ..machine($name, &[stringify!($arg)], &[]) };
                &MACHINE
            };

            fn needs(_: &mut Needs<'_>) {}

            fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
                match access {
                    Arguments::Save(call, save) => {
                        save.put(stringify!($arg), &call.$arg);
                        Ok(None)
                    }
                    Arguments::Load(saved) => Ok(Some($type { $arg: saved.get(stringify!($arg))? })),
                }
            }

            fn drive<'run>(
                start: Option<Self>,
                _: &'run FiberContext,
                _: &'run mut Frame,
            ) -> impl Future<Output = Result<$output, $error>> + Send + 'run {
                async move {
                    let $arg = start.unwrap().$arg;
                    $body
                }
            }
        }
    };
}
pub(crate) use plain;
