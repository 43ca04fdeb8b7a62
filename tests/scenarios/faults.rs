//! A containerd that misbehaves: calls that hang, answers that are lost, events that never come.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::fault_proxy::{FAILED_PRECONDITION, Fault, NOT_FOUND, UNAVAILABLE};
use crate::support::{Instance, Options, PodView, host, seconds, sleeper};

fn proxied() -> Instance {
    let settings = "crashLoopBackOff: {initialContainerRestartPeriod: 1s}\nrelistPeriod: 1s\n".into();
    Instance::with(Options { proxy: true, settings, ..Options::default() })
}

#[test]
fn an_exit_is_noticed_although_no_event_ever_comes() {
    let mut instance = proxied();
    instance.proxy().always("Events/Subscribe", Fault::Hang);
    instance.proxy().always("Tasks/Wait", Fault::Hang);
    instance.restart_podling();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    host::signal(instance.pid(&before, "main"), Signal::KILL);
    let after =
        instance.until_pod("web", "was restarted", |p| p.is_ready() && p.id("main") != before.id("main"));
    assert_eq!(after.restarts("main"), 1);
    instance.proxy().heal();
}

#[test]
fn a_task_that_cannot_be_killed_nor_deleted_does_not_keep_its_pod_down() {
    let instance = proxied();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.proxy().always("Tasks/Kill", Fault::Status(NOT_FOUND, "process already finished"));
    instance.proxy().always("Tasks/Delete", Fault::Status(FAILED_PRECONDITION, "task must be stopped"));
    host::signal(instance.pid(&before, "main"), Signal::KILL);
    instance.until_pod("web", "runs under a new id", |p| p.is_ready() && p.id("main") != before.id("main"));
    instance.proxy().heal();
    instance.until("the old record is cleaned up behind it", |i| {
        (!i.ctr(&["containers", "ls", "-q"]).contains(&before.id("main"))).then_some(())
    });
}

#[test]
fn a_start_that_hangs_does_not_hold_up_other_pods() {
    let instance = proxied();
    instance.proxy().times(1, "Tasks/Create", Fault::Hang);
    instance.write("stuck.yaml", &sleeper("stuck"));
    instance.until("the call hangs", |i| (i.proxy().count("Tasks/Create") > 0).then_some(()));
    for name in ["one", "two", "three"] {
        instance.write(&format!("{name}.yaml"), &sleeper(name));
    }
    for name in ["one", "two", "three"] {
        instance.within(seconds(20), "other pods start", |i| i.pod(name).filter(PodView::is_ready));
    }
}

#[test]
fn a_lost_answer_to_a_start_gives_one_container_in_the_end() {
    for call in ["Containers/Create", "Snapshots/Prepare", "Tasks/Create", "Tasks/Start"] {
        let instance = proxied();
        instance.proxy().times(1, call, Fault::LoseReply(UNAVAILABLE));
        instance.write("web.yaml", &sleeper("web"));
        instance.ready("web");
        assert!(instance.proxy().count(call) >= 1, "{call} is never called");
        instance.until("one container is left", |i| {
            (i.ctr(&["containers", "ls", "-q"]).lines().count() == 1).then_some(())
        });
    }
}

#[test]
fn errors_while_stopping_are_tried_again_until_nothing_is_left() {
    let instance = proxied();
    instance.write("web.yaml", &sleeper("web"));
    instance.ready("web");
    for call in ["Tasks/Kill", "Tasks/Delete", "Containers/Delete", "Snapshots/Remove"] {
        instance.proxy().times(2, call, Fault::Status(UNAVAILABLE, "a bad day"));
    }
    instance.remove("web.yaml");
    instance.gone("web");
}

#[test]
fn a_containerd_that_answers_late_only_makes_things_late() {
    let instance = proxied();
    for call in ["Containers/Create", "Tasks/Create", "Tasks/Start", "Tasks/List", "Containers/List"] {
        instance.proxy().always(call, Fault::Delay(Duration::from_millis(400)));
    }
    instance.write("web.yaml", &sleeper("web"));
    let view = instance.ready("web");
    assert_eq!(view.restarts("main"), 0);
    instance.remove("web.yaml");
    instance.gone("web");
    instance.proxy().heal();
}

#[test]
fn a_containerd_that_is_unavailable_for_a_while_changes_nothing() {
    let instance = proxied();
    instance.write("web.yaml", &sleeper("web"));
    let before = instance.ready("web");
    instance.proxy().always("", Fault::Status(UNAVAILABLE, "a bad day"));
    instance.stays(seconds(3), "the pod is still shown", |i| i.pod("web").is_some());
    instance.proxy().heal();
    let after = instance.ready("web");
    assert_eq!((after.id("main"), after.restarts("main")), (before.id("main"), 0));
}
