use k8s_openapi::api::core::v1::PodCondition;

use super::*;
use crate::manifest::PodManifest;
use crate::pod::plan::State;
use crate::store::{Exit, HookPhase, PodRecord, RestartAll, SandboxRecord, StopCause, Verdict};
use crate::system::clock::{self, Moment};

struct Case {
    spec: PodSpec,
    record: StatusRecord,
    instances: Vec<Instance>,
    plan: Plan,
    waiting: BTreeMap<String, Waiting>,
    health: BTreeMap<String, Health>,
    stopped: bool,
    hashes: Hashes,
    trouble: Option<Waiting>,
    ending: Option<Ending>,
    conditions: BTreeMap<String, (bool, Timestamp)>,
    now: Timestamp,
}

impl Case {
    fn new(init: &[&str], regular: &[&str]) -> Self {
        let list = |names: &[&str]| -> Vec<Container> {
            names
                .iter()
                .map(|n| Container { name: (*n).into(), image: Some("i:1".into()), ..Default::default() })
                .collect()
        };
        Self {
            spec: PodSpec {
                containers: list(regular),
                init_containers: (!init.is_empty()).then(|| list(init)),
                ..Default::default()
            },
            record: StatusRecord {
                sandbox: Some(SandboxRecord {
                    id: "s".into(),
                    ips: vec!["10.0.0.2".into()],
                    host_network: false,
                    ready: true,
                }),
                ..Default::default()
            },
            instances: Vec::new(),
            plan: Plan::default(),
            waiting: BTreeMap::new(),
            health: BTreeMap::new(),
            stopped: false,
            hashes: Hashes {
                containers: regular.iter().map(|n| ((*n).into(), "h".into())).collect(),
                init_containers: init.iter().map(|n| ((*n).into(), "h".into())).collect(),
                ..Hashes::default()
            },
            trouble: None,
            ending: None,
            conditions: BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn running(mut self, name: &str) -> Self {
        self.instances.push(Instance {
            id: name.into(),
            name: name.into(),
            kind: Kind::Regular,
            hash: "h".into(),
            sandbox: "s".into(),
            state: State::Running,
        });
        let history = self.record.containers.entry(name.into()).or_default();
        history.container_id = Some(name.into());
        history.started = Some(self.now);
        self
    }

    fn exited(mut self, name: &str, code: i32) -> Self {
        let finished = self.now;
        let history = self.record.containers.entry(name.into()).or_default();
        history.container_id = Some(name.into());
        history.last = Some(Exit {
            container_id: name.into(),
            code,
            reason: if code == 0 { "Completed" } else { "Error" }.into(),
            message: "why".into(),
            started: None,
            finished,
            finished_at: Moment::default(),
            ran_for: Default::default(),
            cause: StopCause::Other,
        });
        self
    }

    fn status(&mut self) -> PodStatus {
        let facts = Facts {
            spec: &self.spec,
            record: &self.record,
            instances: &self.instances,
            sandbox: SandboxState::Ready,
            plan: &self.plan,
            waiting: &self.waiting,
            health: &self.health,
            hashes: &self.hashes,
            pending_update: None,
            resize: Vec::new(),
            trouble: self.trouble.as_ref(),
            stopped: self.stopped,
            terminating: self.ending.is_some(),
            ending: self.ending,
            host_ips: &["192.0.2.7".to_owned()],
            qos_class: "BestEffort",
            now: self.now,
        };
        status(&facts, &mut self.conditions)
    }
}

fn condition<'a>(status: &'a PodStatus, name: &str) -> &'a PodCondition {
    status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == name)
        .unwrap_or_else(|| panic!("no condition {name}"))
}

fn waiting_reason(status: &PodStatus) -> Option<String> {
    let first = status.container_statuses.as_ref()?.first()?.clone();
    first.state?.waiting?.reason
}

#[test]
fn a_running_pod_is_ready_with_its_address() {
    let status = Case::new(&[], &["a"]).running("a").status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(condition(&status, "Ready").status, "True");
    let first = &status.container_statuses.expect("there is one")[0];
    assert!(first.ready && first.state.as_ref().is_some_and(|s| s.running.is_some()));
}

#[test]
fn a_host_network_pod_has_the_nodes_address() {
    let mut case = Case::new(&[], &["a"]).running("a");
    case.record.sandbox.as_mut().expect("made above").host_network = true;
    assert_eq!(case.status().pod_ip.as_deref(), Some("192.0.2.7"));
}

#[test]
fn a_pod_that_waits_for_an_image_is_pending_and_says_which() {
    let mut case = Case::new(&[], &["a"]);
    case.waiting.insert(
        "a".into(),
        Waiting { reason: "ErrImagePull".into(), message: "image i:1 is not present".into() },
    );
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(waiting_reason(&status).as_deref(), Some("ErrImagePull"));
    let ready = condition(&status, "Ready");
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [a]"));
}

#[test]
fn a_crash_loop_shows_the_back_off_and_the_last_exit() {
    let mut case = Case::new(&[], &["a"]).exited("a", 3);
    case.plan.backing_off.insert("a".into(), Moment::default());
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(waiting_reason(&status).as_deref(), Some("CrashLoopBackOff"));
    let first = &status.container_statuses.expect("there is one")[0];
    let last = first.last_state.as_ref().and_then(|s| s.terminated.as_ref()).expect("it ended before");
    assert_eq!((last.exit_code, last.message.as_deref()), (3, Some("why")));
}

#[test]
fn before_init_is_done_containers_are_initializing() {
    let status = Case::new(&["i"], &["a"]).status();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(waiting_reason(&status).as_deref(), Some("PodInitializing"));
    assert_eq!(
        condition(&status, "Initialized").message.as_deref(),
        Some("containers with incomplete status: [i]")
    );
}

#[test]
fn a_finished_pod_has_its_phase_and_is_not_ready() {
    for (outcome, phase, reason) in
        [(Outcome::Succeeded, "Succeeded", "PodCompleted"), (Outcome::Failed, "Failed", "PodFailed")]
    {
        let mut case = Case::new(&[], &["a"]).exited("a", 0);
        case.plan.outcome = Some(outcome);
        let status = case.status();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(condition(&status, "Ready").reason.as_deref(), Some(reason));
        assert_eq!(waiting_reason(&status), None);
    }
}

#[test]
fn a_stopped_pod_says_how_to_start_it() {
    let mut case = Case::new(&[], &["a"]);
    case.stopped = true;
    let status = case.status();
    assert_eq!(status.reason.as_deref(), Some("Stopped"));
    assert!(status.message.is_some_and(|m| m.contains("podling start")));
}

#[test]
fn a_condition_keeps_the_time_it_last_changed() {
    let mut case = Case::new(&[], &["a"]);
    let first = case.status();
    let mut case = case.running("a");
    case.now = Timestamp::from_second(100).expect("in range");
    let changed = case.status();
    case.now = Timestamp::from_second(200).expect("in range");
    let same = case.status();
    let at = |s: &PodStatus| condition(s, "Ready").last_transition_time.clone().map(|t| t.0.as_second());
    assert_eq!((at(&first), at(&changed), at(&same)), (Some(0), Some(100), Some(100)));
}

#[test]
fn a_pod_whose_file_is_broken_runs_on_and_says_that_it_is_not_applied() {
    let mut case = Case::new(&[], &["a"]).running("a");
    assert_eq!(condition(&case.status(), "Applied").status, "True");
    case.trouble = Some(Waiting { reason: "ParseError".into(), message: "a.yaml:1:1: no".into() });
    let status = case.status();
    let applied = condition(&status, "Applied");
    assert_eq!((applied.status.as_str(), applied.reason.as_deref()), ("False", Some("ParseError")));
    assert_eq!(applied.message.as_deref(), Some("a.yaml:1:1: no"));
    assert_eq!((status.reason.as_deref(), condition(&status, "Ready").status.as_str()), (None, "True"));
}

#[test]
fn a_change_is_applied_when_the_containers_before_it_are_gone() {
    let mut case = Case::new(&[], &["a"]).running("a");
    case.hashes.containers.insert("a".into(), "newer".into());
    let status = case.status();
    let applied = condition(&status, "Applied");
    assert_eq!(applied.reason.as_deref(), Some("Updating"));
    let text = "containers of the earlier manifest are still being stopped: [a]";
    assert_eq!(applied.message.as_deref(), Some(text));
}

#[test]
fn a_sidecar_of_the_earlier_manifest_counts_and_other_init_containers_do_not() {
    let mut case = Case::new(&["s"], &["a"]).running("s").running("a");
    case.instances[0].kind = Kind::Init;
    case.hashes.init_containers.insert("s".into(), "newer".into());
    assert_eq!(condition(&case.status(), "Applied").status, "True");
    case.spec.init_containers.as_mut().expect("there is one")[0].restart_policy = Some("Always".into());
    let status = case.status();
    let text = "containers of the earlier manifest are still being stopped: [s]";
    assert_eq!(condition(&status, "Applied").message.as_deref(), Some(text));
}

#[test]
fn the_stop_signal_of_manifest_or_image_is_told() {
    let mut case = Case::new(&[], &["a"]).running("a");
    let signal =
        |case: &mut Case| case.status().container_statuses.expect("there is one")[0].stop_signal.clone();
    assert_eq!(signal(&mut case), None);
    case.record.containers.get_mut("a").expect("it runs").stop_signal = Some(3);
    assert_eq!(signal(&mut case).as_deref(), Some("SIGQUIT"));
    case.spec.containers[0].lifecycle = Some(k8s_openapi::api::core::v1::Lifecycle {
        stop_signal: Some("SIGUSR1".into()),
        ..Default::default()
    });
    assert_eq!(signal(&mut case).as_deref(), Some("SIGUSR1"));
}

#[test]
fn a_pod_with_readiness_gates_runs_and_is_never_ready_and_says_for_what() {
    let mut case = Case::new(&[], &["a"]).running("a");
    let gate = |name: &str| k8s_openapi::api::core::v1::PodReadinessGate { condition_type: name.into() };
    case.spec.readiness_gates = Some(vec![gate("example.com/a"), gate("b")]);
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    let ready = condition(&status, "Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("ReadinessGatesNotReady")));
    assert_eq!(
        ready.message.as_deref(),
        Some(
            "corresponding condition of pod readiness gate \"example.com/a\" does not exist., \
             corresponding condition of pod readiness gate \"b\" does not exist."
        )
    );
}

#[test]
fn a_pod_on_its_way_to_a_restart_is_not_ready_though_it_still_runs() {
    let mut case = Case::new(&[], &["a"]).running("a");
    case.ending = Some(Ending::Restart);
    let status = case.status();
    assert_eq!(status.reason.as_deref(), Some("Restarting"));
    assert_eq!(condition(&status, "Ready").reason.as_deref(), Some("PodStopping"));
    assert_eq!(condition(&status, "Applied").status, "False");
    assert!(status.container_statuses.is_some_and(|c| c[0].ready));
}

/// A pod as the store has it, with what was said of it in the boot `boot_id`.
fn stored(mut case: Case, boot_id: &str) -> PodStatus {
    case.record.boot_id = boot_id.into();
    let pod = k8s_openapi::api::core::v1::Pod { spec: Some(case.spec), ..Default::default() };
    let manifest = PodManifest::without_file(crate::manifest::PodKey::new("default", "web"), pod);
    let spec = crate::store::PodSpecRecord {
        version: crate::store::VERSION,
        uid: "u".into(),
        source: "file".into(),
        seen: case.now,
        stopped: false,
        removing: false,
        manifest: std::sync::Arc::new(manifest),
    };
    from_record(&PodRecord { spec, status: case.record }).status
}

#[test]
fn a_stored_pod_is_shown_running_in_the_boot_it_was_started_in_only() {
    let ready = |boot: &str| {
        let status = stored(Case::new(&[], &["a"]).running("a"), boot);
        let running = status.container_statuses.iter().flatten().any(|c| c.ready);
        (running, condition(&status, "Ready").status.clone())
    };
    assert_eq!(ready(clock::boot_id()), (true, "True".to_owned()));
    assert_eq!(ready("an earlier boot"), (false, "False".to_owned()));
}

#[test]
fn a_stored_pod_that_is_done_is_shown_done() {
    for boot in [clock::boot_id(), "an earlier boot"] {
        let mut case = Case::new(&[], &["a"]).exited("a", 0);
        case.spec.restart_policy = Some("Never".into());
        let status = stored(case, boot);
        assert_eq!(status.phase.as_deref(), Some("Succeeded"));
        assert_eq!(condition(&status, "Ready").reason.as_deref(), Some("PodCompleted"));
    }
}

impl Case {
    fn history(&mut self, name: &str) -> &mut crate::store::ContainerHistory {
        self.record.containers.entry(name.into()).or_default()
    }

    fn sidecar(mut self, name: &str) -> Self {
        let init = self.spec.init_containers.iter_mut().flatten();
        init.filter(|c| c.name == name).for_each(|c| c.restart_policy = Some("Always".into()));
        self
    }
}

#[test]
fn a_container_whose_post_start_hook_runs_is_still_being_made() {
    let mut case = Case::new(&[], &["a"]).running("a");
    for (phase, reason) in [
        (HookPhase::Begun(Moment::default()), Some("ContainerCreating")),
        (HookPhase::Failed("exit code 1".into()), Some("PostStartHookError")),
        (HookPhase::Done, None),
    ] {
        case.history("a").post_start = Some(phase);
        let status = case.status();
        assert_eq!(waiting_reason(&status).as_deref(), reason);
        assert_eq!(condition(&status, "Ready").status == "True", reason.is_none());
        assert_eq!(status.phase.as_deref(), Some(if reason.is_none() { "Running" } else { "Pending" }));
    }
}

#[test]
fn a_container_with_probes_is_not_ready_before_their_first_verdict() {
    let mut case = Case::new(&[], &["a", "b"]).running("a").running("b");
    case.spec.containers[0].readiness_probe = Some(Default::default());
    case.spec.containers[1].startup_probe = Some(Default::default());
    let of = |s: &PodStatus| {
        let list = s.container_statuses.iter().flatten();
        list.map(|c| (c.started == Some(true), c.ready)).collect::<Vec<_>>()
    };
    assert_eq!(of(&case.status()), [(true, false), (false, false)]);
    for id in ["a", "b"] {
        case.health.insert(id.into(), Health { started: true, ready: true, failed: None });
    }
    assert_eq!(of(&case.status()), [(true, true), (true, true)]);
}

#[test]
fn sidecars_count_for_readiness_and_initialisation_but_not_for_the_end() {
    let mut case = Case::new(&["side"], &["a"]).sidecar("side");
    let status = case.status();
    assert_eq!(condition(&status, "Initialized").reason.as_deref(), Some("ContainersNotInitialized"));
    let text = Some("containers with unready status: [side a]");
    assert_eq!(condition(&status, "Ready").message.as_deref(), text);
    let mut side = Case::new(&[], &[]).running("side").instances.remove(0);
    side.kind = Kind::Init;
    case.instances.push(side);
    case.history("side").container_id = Some("side".into());
    let status = case.status();
    assert_eq!(condition(&status, "Initialized").status, "True");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let of_side = &status.init_container_statuses.expect("there is one")[0];
    assert!(of_side.ready && of_side.started == Some(true));
    // The pod is done, and its sidecar on its way out: it ends with it.
    let mut case = case.exited("a", 0);
    case.plan.outcome = Some(Outcome::Succeeded);
    assert_eq!(case.status().phase.as_deref(), Some("Running"));
    case.instances.clear();
    let status = case.exited("side", 143).status();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    for (name, on) in [("Initialized", "True"), ("Ready", "False"), ("ContainersReady", "False")] {
        let condition = condition(&status, name);
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_deref()),
            (on, Some("PodCompleted")),
            "{name}"
        );
    }
}

#[test]
fn a_restart_of_all_shows_as_a_condition_and_in_its_containers() {
    let mut case = Case::new(&[], &["a"]);
    let rule = k8s_openapi::api::core::v1::ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: None,
    };
    case.spec.containers[0].restart_policy_rules = Some(vec![rule]);
    assert_eq!(condition(&case.status(), "AllContainersRestarting").status, "False");
    let mut case = case.exited("a", 42);
    case.record.restart_all =
        Some(RestartAll { by: "a".into(), under_way: true, backoff: Default::default() });
    let status = case.status();
    assert_eq!(condition(&status, "AllContainersRestarting").status, "True");
    assert_eq!(waiting_reason(&status).as_deref(), Some("RestartingAllContainers"));
}

#[test]
fn a_pod_whose_time_is_over_says_so() {
    let mut case = Case::new(&[], &["a"]).exited("a", 143);
    let message = "Pod was active on the node longer than the specified deadline";
    case.record.verdict = Some(Verdict { reason: "DeadlineExceeded".into(), message: message.into() });
    case.plan.outcome = Some(Outcome::Failed);
    let status = case.status();
    let shown = [status.phase.as_deref(), status.reason.as_deref(), status.message.as_deref()];
    assert_eq!(shown, [Some("Failed"), Some("DeadlineExceeded"), Some(message)]);
    assert_eq!(condition(&status, "Ready").reason.as_deref(), Some("PodFailed"));
}

#[test]
fn termination_messages_share_12_kibibytes() {
    let names: Vec<String> = (0..6).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut case = Case::new(&[], &names).exited("c0", 1);
    case.history("c0").last.as_mut().expect("it ended").message = "ä".repeat(2048);
    let status = case.status();
    let state = status.container_statuses.expect("there are some")[0].state.clone();
    let message = state.and_then(|s| s.terminated).and_then(|t| t.message).expect("it left one");
    assert_eq!(message, "ä".repeat(1024));
}
