//! Chat: turns, their logs, and what becomes of them when they are interrupted.
mod answers;
mod called_together;
mod compacted;
mod damaged;
mod given_up;
mod hooked;
mod identity;
mod killed;
mod logs;
mod looped;
mod panicking;
mod recovery;
mod replay;
mod reported;
mod resuming;
mod scripted;
mod turns;
