//! One run of a probe: what it asks, and what comes of it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use super::http::HttpGet;
use super::{AGENT, ProbeKind, grpc, http, target, tcp};
use crate::runtime::Runtime;
use crate::runtime::spec::expand;
use crate::system::clock;

/// Tries of a run that could not be made.
const TRIES: u32 = 3;
/// Pause between them.
const RETRY: Duration = Duration::from_millis(100);
/// Longest text of a result that is kept.
const MESSAGE_MAX: usize = 1024;
/// How often a run looks whether podling itself runs, and how late it may be there.
const BEAT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is well.
    Success,
    /// It is well, with a remark.
    Warning(String),
    /// It is not.
    Failure(String),
    /// The probe could not be made, and the container is to blame: it counts as a failure.
    Broken(String),
    /// The probe could not be made, and the node is to blame: it says nothing.
    Unknown(String),
}

/// What to ask.
#[derive(Clone, Debug)]
enum Question {
    Exec(Vec<String>),
    Http(HttpGet),
    Tcp { hosts: Vec<String>, port: u16 },
    Grpc { hosts: Vec<String>, port: u16, tls: bool, service: String },
    Nonsense(String),
}

/// A run to be made.
pub struct Check {
    id: String,
    kind: ProbeKind,
    question: Question,
    limit: Duration,
}

impl Check {
    /// The run that `probe` of `container` asks for, in the container `id` of a pod with these addresses.
    pub fn new(
        id: &str,
        kind: ProbeKind,
        probe: &Probe,
        container: &Container,
        addresses: &[String],
    ) -> Self {
        let seconds = probe.timeout_seconds.unwrap_or(1).max(1);
        Self {
            id: id.to_owned(),
            kind,
            question: question(probe, container, addresses).unwrap_or_else(Question::Nonsense),
            limit: Duration::from_secs(seconds.unsigned_abs().into()),
        }
    }

    /// Makes it. What could not be made is tried a few times at once.
    pub async fn run(&self, runtime: &Runtime) -> Outcome {
        let mut outcome = self.while_podling_runs(runtime).await;
        for _ in 1..TRIES {
            if !matches!(outcome, Outcome::Broken(_) | Outcome::Unknown(_)) {
                break;
            }
            tokio::time::sleep(RETRY).await;
            outcome = self.while_podling_runs(runtime).await;
        }
        outcome
    }

    /// A failure says nothing where podling stood still meanwhile, as on a machine that was suspended or that has
    /// no time for it: the answer may have come in time, and nobody was there.
    async fn while_podling_runs(&self, runtime: &Runtime) -> Outcome {
        match unless_held_up(self.once(runtime)).await {
            (Outcome::Failure(why), true) => {
                Outcome::Unknown(format!("podling itself was held up meanwhile: {why}"))
            }
            (outcome, _) => outcome,
        }
    }

    async fn once(&self, runtime: &Runtime) -> Outcome {
        let verdict = |answer: Result<(), String>| match answer {
            Ok(()) => Outcome::Success,
            Err(why) => Outcome::Failure(why),
        };
        match &self.question {
            Question::Exec(command) => self.exec(runtime, command).await,
            Question::Http(request) => http_outcome(http::get(request, self.limit).await),
            Question::Tcp { hosts, port } => verdict(tcp::dial(hosts, *port, self.limit).await),
            Question::Grpc { hosts, port, tls, service } => {
                verdict(grpc::check(hosts, *port, *tls, service, self.limit).await)
            }
            Question::Nonsense(why) => Outcome::Broken(why.clone()),
        }
    }

    async fn exec(&self, runtime: &Runtime, command: &[String]) -> Outcome {
        use crate::runtime::ExecError;
        match runtime.exec_sync(&self.id, self.kind.purpose(), command, self.limit).await {
            Ok(result) if result.code == 0 => Outcome::Success,
            Ok(result) => Outcome::Failure(text(&result.output, result.code)),
            Err(e @ ExecError::TimedOut { .. }) => Outcome::Failure(e.to_string()),
            Err(e) if e.is_the_containers() => Outcome::Broken(e.to_string()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
}

/// Does some work, and says whether this process stood still while it waited for it.
async fn unless_held_up<T>(work: impl Future<Output = T>) -> (T, bool) {
    let mut work = pin!(work);
    let mut held_up = false;
    loop {
        let before = clock::now();
        let done = tokio::time::timeout(BEAT.0, &mut work).await;
        held_up |= clock::now().since(before) > BEAT.0 + BEAT.1;
        if let Ok(done) = done {
            return (done, held_up);
        }
    }
}

fn question(probe: &Probe, container: &Container, addresses: &[String]) -> Result<Question, String> {
    let hosts = |host: Option<&String>| match host.filter(|h| !h.is_empty()) {
        Some(host) => vec![host.clone()],
        None => addresses.to_vec(),
    };
    if let Some(exec) = &probe.exec {
        return Ok(Question::Exec(command(exec.command.as_deref().unwrap_or_default(), container)));
    }
    if let Some(get) = &probe.http_get {
        let headers = get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone()));
        return Ok(Question::Http(HttpGet {
            tls: get.scheme.as_deref() == Some("HTTPS"),
            hosts: hosts(get.host.as_ref()),
            port: target::port(&get.port, container)?,
            path: get.path.clone().unwrap_or_default(),
            headers: headers.collect(),
            agent: AGENT,
        }));
    }
    if let Some(socket) = &probe.tcp_socket {
        let port = target::port(&socket.port, container)?;
        return Ok(Question::Tcp { hosts: hosts(socket.host.as_ref()), port });
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).map_err(|_| format!("{} is not a port", grpc.port))?;
        let service = grpc.service.clone().unwrap_or_default();
        let tls = grpc.mode.as_deref() == Some("TLS");
        return Ok(Question::Grpc { hosts: hosts(None), port, tls, service });
    }
    Err("the probe says nothing to do".to_owned())
}

/// The words of a command with `$(NAME)` replaced, as a kubelet has it for probes: by what `env` says in so many
/// words. Nobody looks up here what a variable comes from elsewhere; such a one is empty.
fn command(words: &[String], container: &Container) -> Vec<String> {
    let mut known = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        known.insert(variable.name.as_str(), variable.value.as_deref().unwrap_or_default());
    }
    words.iter().map(|word| expand(word, |name| known.get(name).copied())).collect()
}

fn http_outcome(answer: Result<http::HttpAnswer, http::HttpError>) -> Outcome {
    match answer {
        Ok(answer) if !(200..400).contains(&answer.status) => {
            Outcome::Failure(format!("HTTP probe failed with statuscode: {}", answer.status))
        }
        Ok(http::HttpAnswer { elsewhere: Some(place), .. }) => Outcome::Warning(format!(
            "Probe terminated redirects: the answer points to {place}, which is not on the host asked"
        )),
        Ok(_) => Outcome::Success,
        Err(e) => Outcome::Failure(e.to_string()),
    }
}

/// What a command said, or its exit code if it said nothing.
fn text(output: &[u8], code: i32) -> String {
    let text = String::from_utf8_lossy(&output[..output.len().min(MESSAGE_MAX)]);
    match text.trim() {
        "" => format!("the command exited with code {code}"),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: serde_json::Value, addresses: &[&str]) -> Result<Question, String> {
        let probe: Probe = serde_json::from_value(json).unwrap();
        let container = serde_json::json!({
            "name": "c",
            "ports": [{"containerPort": 80}, {"containerPort": 8080, "name": "web"}],
        });
        let container: Container = serde_json::from_value(container).unwrap();
        let addresses: Vec<String> = addresses.iter().map(|a| (*a).to_owned()).collect();
        question(&probe, &container, &addresses)
    }

    #[test]
    fn a_probe_goes_to_the_pod_unless_it_names_a_host() {
        let json = serde_json::json!({"httpGet": {"port": "web", "path": "/x", "scheme": "HTTPS"}});
        let Ok(Question::Http(get)) = of(json, &["10.0.0.9"]) else { panic!("no http") };
        assert_eq!((get.tls, get.hosts, get.port), (true, vec!["10.0.0.9".to_owned()], 8080));
        let json = serde_json::json!({"tcpSocket": {"port": 81, "host": "db.example"}});
        let Ok(Question::Tcp { hosts, port }) = of(json, &["10.0.0.9"]) else { panic!("no tcp") };
        assert_eq!((hosts, port), (vec!["db.example".to_owned()], 81));
    }

    #[test]
    fn a_port_that_the_container_does_not_name_is_told() {
        let e = of(serde_json::json!({"httpGet": {"port": "metrics"}}), &[]).unwrap_err();
        assert_eq!(e, "port \"metrics\" is not a port of container c");
    }

    #[test]
    fn status_codes_below_400_pass_and_leaving_the_host_is_remarked() {
        let of = |status, elsewhere: Option<&str>| {
            http_outcome(Ok(http::HttpAnswer { status, elsewhere: elsewhere.map(Into::into) }))
        };
        assert_eq!(of(200, None), Outcome::Success);
        assert_eq!(of(399, None), Outcome::Success);
        assert_eq!(of(500, None), Outcome::Failure("HTTP probe failed with statuscode: 500".into()));
        assert_eq!(of(199, None), Outcome::Failure("HTTP probe failed with statuscode: 199".into()));
        assert!(matches!(of(302, Some("http://x:80/")), Outcome::Warning(_)));
    }

    #[test]
    fn variables_in_a_command_are_those_that_env_spells_out() {
        let container = serde_json::json!({"name": "c", "env": [
            {"name": "FILE", "value": "/a"}, {"name": "FILE", "value": "/b"}, {"name": "RAW", "value": "$(FILE)"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]});
        let container: Container = serde_json::from_value(container).unwrap();
        let words = ["test -e $(FILE)", "$(RAW)", "[$(IP)]", "$(PATH)", "$$(FILE)"].map(String::from);
        assert_eq!(command(&words, &container), ["test -e /b", "$(FILE)", "[]", "$(PATH)", "$(FILE)"]);
    }

    #[tokio::test]
    async fn work_that_takes_its_time_is_no_standstill_and_a_standstill_is_noticed() {
        assert_eq!(unless_held_up(tokio::time::sleep(BEAT.0 * 2)).await, ((), false));
        let blocked = async { std::thread::sleep(BEAT.0 + BEAT.1 * 2) };
        assert_eq!(unless_held_up(blocked).await, ((), true));
    }

    #[test]
    fn a_silent_command_is_told_by_its_code() {
        assert_eq!(text(b" no file\n", 1), "no file");
        assert_eq!(text(b"\n", 7), "the command exited with code 7");
    }
}
