//! How long the demo's start waits for its history: target below 150 ms.

fn main() {
    divan::main();
}

#[divan::bench]
fn load_the_demo_history() -> usize {
    tidegate_testkit::data::demo_history().expect("embedded").log.len()
}
