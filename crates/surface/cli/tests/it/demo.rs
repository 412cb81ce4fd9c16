//! The demo: what it prints, what the page answers, and what a crash leaves.

use serde_json::Value;

use crate::process::{Running, get, run, stdout, text};

#[test]
fn once_ends_with_an_equal_comparison_of_every_document() {
    let output = run(&["demo", "--once", "--listen", "127.0.0.1:0"]);
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}");
    // The recording's notes: vectors nearest to 🐱, by cosine.
    for line in ["🐶 dog face", "🐰 rabbit face", "🐭 mouse face", "🐹 hamster"] {
        assert!(printed.contains(line), "{line} is missing:\n{printed}");
    }
    assert_eq!(printed.matches("fresh: complete up to safe_ts ").count(), 4, "{printed}");
    let digest = |side: &str| {
        let line = printed.lines().find(|line| line.starts_with(&format!("  {side} ")));
        line.and_then(|line| line.split_whitespace().nth(1)).expect("a digest").to_owned()
    };
    assert_eq!(digest("index"), digest("upstream"));
    assert!(printed.ends_with("equal: the index holds exactly what the upstream holds\n"), "{printed}");
}

#[test]
fn a_killed_demo_resumes_and_is_equal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data_dir = ["--data-dir", text(folder.path())];
    let mut demo = Running::demo(&data_dir);
    demo.line("live: ");
    demo.kill();
    let mut demo = Running::demo(&data_dir);
    demo.line("resuming from checkpoint ");
    demo.page();
    demo.kill();
    let output = run(&["demo", "--once", "--listen", "127.0.0.1:0", data_dir[0], data_dir[1]]);
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("resuming from checkpoint "), "{printed}");
    assert!(printed.contains("equal: the index holds exactly what the upstream holds"), "{printed}");
}

fn search(address: &str, query: &str) -> Value {
    let (status, body) = get(address, &format!("/api/v1/search?{query}"));
    assert_eq!(status, 200, "{query}: {body}");
    serde_json::from_str(&body).expect("the API answers in JSON")
}

fn total(address: &str, query: &str) -> u64 {
    let answer = search(address, query);
    assert_eq!(answer["freshness"]["complete"], true, "{query}");
    assert!(answer["freshness"]["safe_ts"].as_str().is_some_and(|ts| ts.len() == 18), "{query}");
    answer["total"].as_u64().expect("a number")
}

fn ids(answer: &Value) -> Vec<u64> {
    let hits = answer["hits"].as_array().expect("hits").iter();
    hits.map(|hit| hit["document"]["id"].as_u64().expect("an id")).collect()
}

/// Expectations are those of the recording's notes ("Search expectations on demo at its end").
#[test]
fn the_page_and_its_api_answer_what_the_recording_holds() {
    let mut demo = Running::demo(&[]);
    let address = demo.page();
    let emoji = |rest: &str| format!("collection=demo.emoji&{rest}");
    assert_eq!(total(&address, &emoji("q=cat&fields=label")), 12);
    assert_eq!(total(&address, &emoji("q=money&fields=tags")), 17);
    assert_eq!(total(&address, &emoji("filter=category%20%3D%20%27food%27")), 131);
    assert_eq!(total(&address, &emoji("filter=since%20%3E%3D%2015.0")), 66);
    assert_eq!(ids(&search(&address, &emoji("sort=-uses&limit=2"))), [100_002, 1]);
    let like = search(&address, &emoji("like=3677&limit=6"));
    let labels: Vec<&str> = like["hits"]
        .as_array()
        .expect("hits")
        .iter()
        .map(|hit| hit["document"]["fields"]["label"].as_str().expect("a label"))
        .collect();
    let nearest = ["dog face", "rabbit face", "mouse face", "hamster", "tiger face", "pouting cat"];
    assert_eq!(labels, nearest);
    assert_eq!(total(&address, "collection=demo.airport&filter=state%20%3D%20%27AK%27"), 258);
    assert_eq!(total(&address, "collection=demo.airport&filter=city%20%3D%20%27Springfield%27"), 8);
    check_page(&address);
}

fn check_page(address: &str) {
    let (status, page) = get(address, "/");
    assert_eq!(status, 200);
    assert!(page.contains("<title>Tidegate</title>"));
    let local = |line: &&str| line.contains("src=") || line.contains("href=");
    let foreign = page.lines().filter(local).find(|line| line.contains("//"));
    assert_eq!(foreign, None, "the page needs no other host");
    for part in ["/app.js", "/hits.js", "/pipeline.js", "/dom.js", "/style.css", "/icon.svg"] {
        assert_eq!(get(address, part).0, 200, "{part}");
    }
    let (status, body) = get(address, "/api/v1/search?collection=demo.nothing&q=x");
    assert_eq!(status, 404);
    assert!(body.contains("SF_COLLECTION_NOT_FOUND"), "{body}");
    let (status, body) = get(address, "/api/v1/search?collection=demo.emoji&qq=x");
    assert_eq!(status, 400);
    assert!(body.contains("TG-API-001") && body.contains("qq"), "{body}");
}
