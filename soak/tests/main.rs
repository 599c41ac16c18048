//! Short runs of the programs, and that their audits find what is wrong.
mod chaos;
mod cluster;
