//! The playground over real sockets.
#![expect(clippy::panic, clippy::indexing_slicing, reason = "a test ends where its expectations do")]

mod bank;
mod controls;
mod feed_client;
mod feeds;
mod moved_clock;
mod pd;
mod tikv_client_crate;

use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_testkit::{History, data};

async fn start(options: PlaygroundOptions) -> Playground {
    Playground::start(options).await.expect("free ports on loopback")
}

fn recorded(name: &str) -> History {
    data::history(name).expect("recorded data")
}
