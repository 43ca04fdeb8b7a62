use serde_json::json;

use super::*;

fn details() -> PodDetails {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u-1", "labels": { "app": "web", "tier": "a" },
        },
        "spec": {
            "nodeName": "node1",
            "initContainers": [{ "name": "setup", "image": "busybox:1" }],
            "containers": [{
                "name": "app", "image": "busybox:1", "command": ["httpd", "-f"],
                "ports": [{ "containerPort": 80, "hostPort": 8080 }],
                "env": [{ "name": "A", "value": "x" }],
                "resources": { "limits": { "memory": "64Mi" } },
                "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true }],
            }],
            "volumes": [{ "name": "data", "hostPath": { "path": "/srv", "type": "Directory" } }],
        },
        "status": {
            "phase": "Running", "podIP": "10.88.0.2", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                { "type": "Ready", "status": "False", "message": "containers with unready status: [app]" },
            ],
            "containerStatuses": [{
                "name": "app", "image": "busybox:1", "imageID": "sha256:1", "ready": false, "restartCount": 2,
                "containerID": "containerd://abc",
                "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20s" } },
                "lastState": { "terminated": {
                    "exitCode": 3, "reason": "Error",
                    "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:05Z",
                } },
            }],
        },
    });
    PodDetails {
        pod: serde_json::from_value(pod).unwrap(),
        source: "file".into(),
        file: "/etc/pods/web.yaml".into(),
        line: 1,
        hash: "abcd".into(),
        probes: Vec::new(),
        warnings: Vec::new(),
        pulls: Vec::new(),
    }
}

fn events() -> Vec<Event> {
    vec![
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "web.1" },
            "involvedObject": { "kind": "Pod", "name": "web" }, "source": { "component": "podling" },
            "type": "Warning", "reason": "BackOff", "message": "back-off 20s", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:04:00Z",
        }))
        .unwrap(),
    ]
}

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

#[test]
fn the_page_shows_the_pod_its_containers_its_file_and_its_events() {
    let text = page(&details(), &events(), &NodeStatus::default(), now());
    let expected = "\
Name:             web
Namespace:        default
UID:              u-1
Node:             node1
Start Time:       2026-01-01T00:00:00Z
Labels:           app=web
                  tier=a
Annotations:      <none>
Status:           CrashLoopBackOff
IP:               10.88.0.2
Manifest:         /etc/pods/web.yaml:1
Manifest Hash:    abcd
Init Containers:
  setup:
    Container ID:
    Image:           busybox:1
    Image ID:
    Ports:           <none>
    Environment:     <none>
    Mounts:          <none>
Containers:
  app:
    Container ID:    containerd://abc
    Image:           busybox:1
    Image ID:        sha256:1
    Ports:           80/TCP (host 8080)
    Command:
      httpd
      -f
    State:           Waiting
      Reason:        CrashLoopBackOff
      Message:       back-off 20s
    Last State:      Terminated
      Reason:        Error
      Exit Code:     3
      Started:       2026-01-01T00:00:00Z
      Finished:      2026-01-01T00:00:05Z
    Ready:           False
    Restart Count:   2
    Limits:
      memory:        64Mi
    Environment:
      A:              x
    Mounts:
      /data from data (ro)
Conditions:
  Type    Status
  Ready   False
  Ready: containers with unready status: [app]
Volumes:
  data:
    Type:            hostPath
    path:            /srv
    type:            Directory
QoS Class:        Burstable
Events:
  Type      Reason    Age                From      Message
  ----      ------    ----               ----      -------
  Warning   BackOff   60s (x3 over 5m)   podling   back-off 20s
";
    assert_eq!(text, expected);
}

#[test]
fn warnings_of_the_manifest_and_problems_of_its_file_stand_together() {
    let mut details = details();
    details.warnings = serde_json::from_value(json!([{
        "severity": "warning", "path": "spec.nodeSelector", "line": 9, "column": 3, "text": "has no effect here",
    }]))
    .unwrap();
    let status: NodeStatus = serde_json::from_value(json!({
        "version": "", "nodeName": "", "containerd": "", "node": {},
        "sources": { "file": { "overflows": 0, "problems": [{
            "path": "/etc/pods/web.yaml", "reason": "ParseError", "message": "broken", "diagnostics": [],
            "keeps": [{ "namespace": "default", "name": "web" }],
        }] } },
    }))
    .unwrap();
    let text = page(&details, &[], &status, now());
    assert!(
        text.contains(
            "Warnings:         /etc/pods/web.yaml: broken; default/web keeps running as last accepted\n\
             \x20                 /etc/pods/web.yaml:9:3: spec.nodeSelector: has no effect here\n"
        ),
        "{text}"
    );
    assert!(text.contains("Events:           <none>\n"), "{text}");
}

#[test]
fn what_to_describe_is_said_in_either_form() {
    let targets = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        targets(&words).map_err(|e| e.to_string())
    };
    assert_eq!(targets(&["pod", "web"]).unwrap(), ["web"]);
    assert_eq!(targets(&["pods", "a", "b"]).unwrap(), ["a", "b"]);
    assert_eq!(targets(&["pod/a", "po/b"]).unwrap(), ["a", "b"]);
    assert_eq!(targets(&["web"]).unwrap_err(), "error: describe what? Say `podling describe pod NAME`");
}

#[test]
fn variables_from_elsewhere_tell_where_from_and_never_the_value() {
    let spec = json!({
        "name": "app",
        "envFrom": [
            { "prefix": "P_", "configMapRef": { "name": "conf" } }, { "secretRef": { "name": "s", "optional": true } },
        ],
        "env": [
            { "name": "A", "valueFrom": { "configMapKeyRef": { "name": "x", "key": "k" } } },
            { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } },
            { "name": "C", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": "D", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
        ],
    });
    let spec: Container = serde_json::from_value(spec).unwrap();
    let mut page = Page { out: String::new() };
    environment_from(&mut page, &spec);
    environment(&mut page, &spec);
    let lines: Vec<String> =
        page.out.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "Environment Variables from:",
        "conf: ConfigMap with prefix 'P_' Optional: false",
        "s: Secret Optional: true",
        "Environment:",
        "A: <set to the key 'k' of config map 'x'> Optional: false",
        "B: <set to the key 'k' in secret 's'> Optional: true",
        "C: (v1:status.podIP)",
        "D: (limits.cpu)",
    ];
    assert_eq!(lines, expected);
}
