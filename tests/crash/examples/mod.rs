//! The fibers and agents of the examples. Each is a program; here they are modules, and each of them has its test as a module of its own.
macro_rules! examples {
    ($($name:ident $file:literal),* $(,)?) => {
        $(
            #[allow(dead_code, reason = "of the program, the fibers are tried here")]
            #[path = $file]
            mod $name;
        )*
    };
}

examples! {
    agent_loop "../../../examples/agent_loop.rs",
    approval "../../../examples/approval.rs",
    chaos_program "../../../soak/chaos/main.rs",
    fan_out "../../../examples/fan_out.rs",
    keep_alive "../../../examples/keep_alive.rs",
    kill_and_resume "../../../examples/kill_and_resume.rs",
    payments "../../../examples/payments.rs",
    research "../../../examples/research.rs",
    schedule "../../../examples/schedule.rs",
    stream_resume "../../../examples/stream_resume.rs",
}
