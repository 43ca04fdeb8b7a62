use super::*;
use crate::pod::order::Order;
use crate::settings::{Paths, Settings};
use crate::system::machine::Machine;

fn node(cpus: u32, max_pods: u32) -> Capacity {
    let mut settings = Settings::defaults(Paths::under("/x"));
    settings.max_pods = max_pods;
    let machine = Machine { cpus, memory: 1 << 30, arch: "amd64", ..Machine::default() };
    Capacity::on(&settings, &machine)
}

fn pod(name: &str, cpu: &str, priority: i32) -> PodManifest {
    let pod = serde_json::json!({"spec": {"priority": priority, "containers":
        [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}});
    PodManifest::without_file(PodKey::new("default", name), serde_json::from_value(pod).expect("a pod"))
}

fn rank(pod: &PodManifest, node: &Capacity) -> Rank {
    Order::default().rank(pod, node)
}

fn claim(claims: &Claims, pod: &PodManifest, node: &Capacity) -> String {
    match claims.claim(rank(pod, node), pod, node) {
        Ok(()) => "ok".into(),
        Err(refusal) => format!("{}: {}", refusal.why.reason, refusal.why.message),
    }
}

#[test]
fn a_pod_that_does_not_fit_is_told_who_holds_what_and_fits_when_it_is_released() {
    let (claims, node) = (Claims::default(), node(2, 110));
    let (a, b) = (pod("a", "1500m", 0), pod("b", "1", 0));
    assert_eq!(claim(&claims, &a, &node), "ok");
    assert_eq!(
        claim(&claims, &b, &node),
        "OutOfcpu: the pod requests cpu 1 and 500m of 2 are free; held by default/a 1500m; this pod starts when enough is released"
    );
    claims.release(&a.key);
    assert_eq!(claim(&claims, &b, &node), "ok");
}

#[test]
fn a_running_pod_is_never_put_out_and_its_own_share_is_not_held_against_it() {
    let (claims, node) = (Claims::default(), node(2, 110));
    let a = rank(&pod("a", "3", 0), &node);
    claims.adopt(&a.key, &pod("a", "3", 0));
    assert!(claims.would_fit(a.clone(), &pod("a", "2", 0), &node, true).is_ok());
    let refusal = claims.would_fit(a, &pod("a", "3", 0), &node, true).unwrap_err();
    assert!(refusal.never);
    assert!(claim(&claims, &pod("b", "100m", 0), &node).starts_with("OutOfcpu: "));
}

#[test]
fn there_are_so_many_places_and_no_more() {
    let (claims, node) = (Claims::default(), node(2, 1));
    assert_eq!(claim(&claims, &pod("a", "0", 0), &node), "ok");
    assert!(claim(&claims, &pod("b", "0", 0), &node).starts_with("OutOfpods: this node runs 1 pods"));
}

#[tokio::test]
async fn the_most_important_of_those_that_wait_is_first() {
    let (claims, node) = (Claims::default(), node(2, 110));
    let holder = pod("holder", "2", 0);
    let (low, high) = (pod("a-low", "2", 1), pod("z-high", "2", 5));
    assert_eq!(claim(&claims, &holder, &node), "ok");
    claim(&claims, &low, &node);
    claim(&claims, &high, &node);
    claims.release(&holder.key);
    assert_eq!(claims.released().await, [high.key.clone(), low.key.clone()]);
    assert!(claim(&claims, &low, &node).contains("pod default/z-high of higher priority comes first"));
    assert_eq!(claim(&claims, &high, &node), "ok");
}

#[tokio::test]
async fn of_those_that_come_together_the_first_get_the_places_whoever_asks_first() {
    let (claims, node) = (Claims::default(), node(2, 2));
    let pods = [pod("a", "0", 0), pod("b", "0", 0), pod("c", "0", 0), pod("d", "0", 5)];
    for one in &pods {
        claims.expect(rank(one, &node), one);
    }
    let [a, b, c, d] = &pods;
    assert!(claim(&claims, c, &node).starts_with("OutOfpods: pod default/a comes first and waits for it"));
    assert!(claim(&claims, b, &node).contains("pod default/a comes first"));
    assert_eq!(claim(&claims, a, &node), "ok");
    // One that waits for something else leaves its place to the next.
    claims.withdraw(&d.key);
    assert_eq!(claims.released().await, [b.key.clone(), c.key.clone()]);
    assert_eq!(claim(&claims, b, &node), "ok");
}

#[tokio::test]
async fn one_that_is_made_anew_with_less_wakes_those_that_wait() {
    let (claims, node) = (Claims::default(), node(2, 110));
    let next = pod("next", "1", 0);
    assert_eq!(claim(&claims, &pod("a", "2", 0), &node), "ok");
    claim(&claims, &next, &node);
    assert_eq!(claim(&claims, &pod("a", "1", 0), &node), "ok");
    assert_eq!(claims.released().await, std::slice::from_ref(&next.key));
}

#[test]
fn nobody_waits_for_one_that_can_never_come() {
    let (claims, node) = (Claims::default(), node(2, 110));
    assert!(claim(&claims, &pod("huge", "3", 9), &node).starts_with("OutOfcpu: "));
    assert_eq!(claim(&claims, &pod("a", "2", 0), &node), "ok");
}

fn on_port(name: &str, port: u16) -> PodManifest {
    let pod = serde_json::json!({"spec": {"containers":
        [{"name": "a", "ports": [{"containerPort": 80, "hostPort": port}]}]}});
    PodManifest::without_file(PodKey::new("default", name), serde_json::from_value(pod).expect("a pod"))
}

#[tokio::test]
async fn of_changed_pods_that_wait_for_each_other_only_the_last_gives_way() {
    let (claims, node) = (Claims::default(), node(2, 110));
    for (name, port) in [("a", 61001), ("b", 61002), ("c", 61003)] {
        claims.adopt(&PodKey::new("default", name), &on_port(name, port));
    }
    let fits = |pod: &PodManifest| claims.would_fit(rank(pod, &node), pod, &node, true).is_ok();
    let (a, b, c) = (on_port("a", 61002), on_port("b", 61003), on_port("c", 61001));
    // As long as one of them wants to stay, none has to go.
    assert!(!fits(&a) && !fits(&b) && !fits(&a));
    assert!(fits(&c), "the circle is closed, and c is the last");
    assert!(claim(&claims, &c, &node).contains("held by pod default/a"));
    assert_eq!(claims.released().await.len(), 3);
    assert!(!fits(&a) && fits(&b));
    assert_eq!(claim(&claims, &b, &node), "ok");
    assert!(fits(&a));
    assert_eq!(claim(&claims, &a, &node), "ok");
    assert_eq!(claim(&claims, &c, &node), "ok");
}

#[test]
fn nobody_gives_way_for_one_that_stays_after_all() {
    let (claims, node) = (Claims::default(), node(2, 110));
    claims.adopt(&PodKey::new("default", "a"), &on_port("a", 61004));
    claims.adopt(&PodKey::new("default", "b"), &on_port("b", 61005));
    let fits = |pod: &PodManifest| claims.would_fit(rank(pod, &node), pod, &node, true).is_ok();
    assert!(!fits(&on_port("a", 61005)));
    claims.stays(&PodKey::new("default", "a"));
    assert!(!fits(&on_port("b", 61004)));
}
