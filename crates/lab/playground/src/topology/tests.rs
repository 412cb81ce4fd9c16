use super::*;

fn three_stores() -> Topology {
    Topology::new(["a:1", "b:2", "c:3"].map(str::to_owned))
}

fn spans(topology: &Topology) -> Vec<Span> {
    topology.regions().map(|region| region.span.clone()).collect()
}

#[test]
fn a_fresh_cluster_is_one_region_over_all_keys() {
    let topology = three_stores();
    let region = topology.region_of(b"anything").expect("a region for every key");
    assert_eq!((region.span.clone(), region.epoch), (Span::all(), Epoch { conf_ver: 1, version: 1 }));
    assert_eq!(region.peers.len(), 3);
    assert!(region.peers.contains(&region.leader));
}

#[test]
fn a_split_keeps_the_id_on_the_right_and_raises_both_versions() {
    let mut topology = three_stores();
    let original = topology.region_of(b"").expect("a region").id;
    let (left, right) = topology.split(Bytes::from_static(b"m")).expect("an inner key");
    assert_eq!(right, original);
    assert_eq!(spans(&topology), [Span::new("", "m"), Span::new("m", "")]);
    for id in [left, right] {
        assert_eq!(topology.region(id).map(|region| region.epoch.version), Some(2));
    }
    assert_eq!(topology.region_of(b"m").map(|region| region.id), Some(right));
    assert_eq!(topology.region_before(b"m").map(|region| region.id), Some(left));
    assert_eq!(topology.region_before(b"a").map(|region| region.id), None);
    assert_eq!(topology.split(Bytes::from_static(b"m")), Err(TopologyError::SplitAtBound(right)));
}

#[test]
fn a_merge_raises_the_version_above_both_and_keeps_all_keys_covered() {
    let mut topology = three_stores();
    let (left, _) = topology.split(Bytes::from_static(b"m")).expect("a split");
    let (middle, right) = topology.split(Bytes::from_static(b"t")).expect("a split");
    assert_eq!(topology.merge(left, right), Err(TopologyError::NotNeighbours(left, right)));
    topology.merge(left, middle).expect("neighbours");
    assert_eq!(spans(&topology), [Span::new("", "t"), Span::new("t", "")]);
    // Left had version 2, middle 3.
    assert_eq!(topology.region(middle).map(|region| region.epoch.version), Some(4));
    assert_eq!(topology.region(left), None);
}

#[test]
fn a_scan_begins_with_the_region_that_holds_its_start() {
    let mut topology = three_stores();
    topology.split(Bytes::from_static(b"g")).expect("a split");
    topology.split(Bytes::from_static(b"p")).expect("a split");
    let starts = |span: Span| -> Vec<Bytes> {
        topology.regions_in(&span).map(|region| region.span.start.clone()).collect()
    };
    assert_eq!(starts(Span::new("h", "i")), ["g"]);
    assert_eq!(starts(Span::new("h", "q")), ["g", "p"]);
    assert_eq!(starts(Span::new("a", "g")), [""]);
    assert_eq!(starts(Span::all()), ["", "g", "p"]);
}

#[test]
fn a_stopped_store_leads_nothing() {
    let mut topology = three_stores();
    let region = topology.region_of(b"").expect("a region").clone();
    let moved = topology.set_running(region.leader.store_id, false).expect("a known store");
    assert_eq!(moved, [region.id]);
    let after = topology.region(region.id).expect("still there");
    assert_ne!(after.leader, region.leader);
    assert!(after.term > region.term);
    assert_eq!(
        topology.move_leader(region.id, region.leader.store_id),
        Err(TopologyError::StoreStopped(region.leader.store_id))
    );
}
