//! `podling wait`: until a pod is ready, gone, or runs a manifest.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::{Instant, sleep, sleep_until};

use super::Outcome;
use super::args::{Wait, pod_name};
use super::client::{Client, Stream};
use super::error::CliError;
use crate::manifest::{self, ReadOptions};
use crate::pod::board::APPLIED;
use crate::server::query::{Query, encode};
use crate::server::wire::{NodeStatus, PodDetails, WatchEvent};

/// How often the manifest file is read again while waiting for it to be applied.
const REREAD: Duration = Duration::from_millis(500);
/// The first look has this long even when the timeout is shorter, or 0.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Pause before a daemon that went away is asked again.
const RECONNECT: Duration = Duration::from_millis(200);

pub(super) async fn wait(client: Client, namespace: String, args: Wait) -> Outcome {
    let goal = Goal::parse(&args.condition)?;
    if args.file.is_some() && goal != Goal::Applied {
        return Err(CliError::Usage("--file goes with --for=Applied only".to_owned()));
    }
    let deadline = Instant::now() + args.timeout;
    let mut code = ExitCode::SUCCESS;
    for pod in &args.pods {
        let name = pod_name(pod)?.to_owned();
        let waiter = Waiter::new(&client, &namespace, name, goal.clone(), args.file.as_deref()).await?;
        match waiter.run(deadline).await {
            Ok(()) => writeln!(std::io::stdout().lock(), "pod/{} condition met", waiter.name)?,
            Err(error @ CliError::NotRunning { .. }) => return Err(error),
            Err(error) => code = error.report(),
        }
    }
    Ok(code)
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    Condition { name: String, status: String },
    Deleted,
    Applied,
}

impl Goal {
    fn parse(text: &str) -> Result<Self, CliError> {
        let condition = |text: &str| {
            let (name, status) = text.split_once('=').unwrap_or((text, "True"));
            Self::Condition { name: name.to_owned(), status: status.to_owned() }
        };
        match text.to_lowercase().as_str() {
            "deleted" | "delete" => Ok(Self::Deleted),
            "applied" => Ok(Self::Applied),
            "ready" => Ok(condition("Ready")),
            lower if lower.starts_with("condition=") && lower.len() > "condition=".len() => {
                Ok(condition(&text["condition=".len()..]))
            }
            _ => Err(CliError::Usage(format!(
                "--for: `{text}` is not Ready, Deleted, Applied or condition=NAME[=STATUS]"
            ))),
        }
    }
}

/// How one connection's watch came to its end.
enum Watched {
    Met,
    TimedOut,
    /// The daemon went away.
    Ended,
}

/// The file whose content must be in force.
enum Wanted {
    /// The pod's own, read again whenever it is looked at.
    Own,
    /// This hash, of the file that was named.
    Hash(String),
}

/// What was seen of the pod so far.
#[derive(Default)]
struct Latest {
    /// It was there.
    any: bool,
    /// Why its manifest does not run, when that is what is waited for.
    why: Option<String>,
}

struct Waiter<'a> {
    client: &'a Client,
    namespace: &'a str,
    name: String,
    goal: Goal,
    wanted: Wanted,
}

impl<'a> Waiter<'a> {
    async fn new(
        client: &'a Client,
        namespace: &'a str,
        name: String,
        goal: Goal,
        file: Option<&Path>,
    ) -> Result<Self, CliError> {
        let wanted = match file {
            None => Wanted::Own,
            Some(file) => {
                let status: NodeStatus = client.get("/podling/v1/status", &Query::default()).await?;
                Wanted::Hash(hash_of(file, namespace, &name, &status.node_name)?)
            }
        };
        Ok(Self { client, namespace, name, goal, wanted })
    }

    /// Watches until the goal is met, through restarts of the daemon, at most until `deadline`.
    async fn run(&self, deadline: Instant) -> Result<(), CliError> {
        let mut seen = Latest::default();
        let mut stream = self.open().await?;
        loop {
            match self.watch(&mut stream, &mut seen, deadline).await {
                Ok(Watched::Met) => return Ok(()),
                Ok(Watched::TimedOut) => return Err(self.timed_out(&seen)),
                Ok(Watched::Ended) | Err(_) => {}
            }
            stream = loop {
                if Instant::now() >= deadline {
                    return Err(self.timed_out(&seen));
                }
                sleep(RECONNECT).await;
                if let Ok(stream) = self.open().await {
                    break stream;
                }
            };
        }
    }

    async fn open(&self) -> Result<Stream, CliError> {
        let mut query = Query::default();
        query.add("watch", 1).add("allowWatchBookmarks", 1);
        query.add("fieldSelector", format!("metadata.name={}", self.name));
        let path = format!("/api/v1/namespaces/{}/pods", encode(self.namespace));
        self.client.stream(&path, &query).await
    }

    /// Looks at the pod at least once, whatever the deadline, and then at each change.
    async fn watch(
        &self,
        stream: &mut Stream,
        seen: &mut Latest,
        deadline: Instant,
    ) -> Result<Watched, CliError> {
        let patience = deadline.max(Instant::now() + FIRST_LOOK);
        let mut pod: Option<Pod> = None;
        let mut told = false;
        seen.why = None;
        loop {
            tokio::select! {
                event = stream.object::<WatchEvent<Pod>>() => {
                    let Some(WatchEvent { kind, object }) = event? else { return Ok(Watched::Ended) };
                    match kind.as_str() {
                        "BOOKMARK" => told = true,
                        "DELETED" => pod = None,
                        _ => (seen.any, pod) = (true, Some(object)),
                    }
                    seen.why = Self::why_not_applied(pod.as_ref()).filter(|_| self.goal == Goal::Applied);
                }
                () = sleep(REREAD), if self.goal == Goal::Applied && told => {}
                () = sleep_until(if told { deadline } else { patience }) => return Ok(Watched::TimedOut),
            }
            if told && self.met(pod.as_ref()).await {
                return Ok(Watched::Met);
            }
        }
    }

    async fn met(&self, pod: Option<&Pod>) -> bool {
        match &self.goal {
            Goal::Deleted => pod.is_none(),
            Goal::Condition { name, status } => pod.is_some_and(|pod| {
                let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
                let matches = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
                conditions.into_iter().any(|c| matches(&c.type_, name) && matches(&c.status, status))
            }),
            Goal::Applied => match pod {
                Some(pod) if pod.metadata.deletion_timestamp.is_none() => self.applied(pod).await,
                _ => false,
            },
        }
    }

    /// What the daemon says about why a manifest does not run.
    fn why_not_applied(pod: Option<&Pod>) -> Option<String> {
        let conditions = pod?.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|c| c.type_ == APPLIED && c.status != "True")?.message.clone()
    }

    async fn applied(&self, pod: &Pod) -> bool {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(running) = annotations.and_then(|a| a.get("kubernetes.io/config.hash")) else {
            return false;
        };
        let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        if conditions.into_iter().any(|c| c.type_ == APPLIED && c.status != "True") {
            return false;
        }
        match &self.wanted {
            Wanted::Hash(hash) => hash == running,
            Wanted::Own => {
                let path =
                    format!("/podling/v1/namespaces/{}/pods/{}", encode(self.namespace), encode(&self.name));
                let Ok(details) = self.client.get::<PodDetails>(&path, &Query::default()).await else {
                    return false;
                };
                let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
                hash_of(&details.file, self.namespace, &self.name, node).is_ok_and(|hash| hash == *running)
            }
        }
    }

    fn timed_out(&self, seen: &Latest) -> CliError {
        if !seen.any && self.goal != Goal::Deleted {
            let message = format!("pods {:?} not found", self.name);
            return CliError::Server { reason: "NotFound".to_owned(), message };
        }
        let why = seen.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        CliError::Failed(format!("timed out waiting for the condition on pods/{}{why}", self.name))
    }
}

/// The hash of a pod in a manifest file, read as the daemon reads it.
fn hash_of(file: &Path, namespace: &str, name: &str, node: &str) -> Result<String, CliError> {
    let shown: PathBuf = file.to_owned();
    let failed = |text: String| CliError::Failed(format!("{}: {text}", shown.display()));
    let bytes = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    let options = ReadOptions { node_name: node.to_owned(), ..ReadOptions::default() };
    let suffixed = |bare: &str| name.strip_suffix(node).and_then(|n| n.strip_suffix('-')) == Some(bare);
    let documents = manifest::read(&bytes, &options);
    let mine = |d: &&manifest::Document| d.namespace == namespace && (d.name == name || suffixed(&d.name));
    let Some(document) = documents.iter().find(mine) else {
        let refused = documents.iter().flat_map(|d| &d.diagnostics).find(|d| d.path.is_empty());
        return Err(failed(match refused {
            Some(d) => format!("{}:{}: {}", d.line, d.column, d.text),
            None => format!("there is no pod {namespace}/{name} in this file"),
        }));
    };
    match (&document.pod, document.diagnostics.iter().max_by_key(|d| d.severity)) {
        (Some(pod), _) => Ok(pod.hashes.manifest.clone()),
        (None, Some(d)) => Err(failed(format!("{}:{}: {}: {}", d.line, d.column, d.path, d.text))),
        (None, None) => Err(failed(format!("{namespace}/{name} is a {}, not a Pod", document.kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::{Daemon, running};

    async fn waiter<'a>(client: &'a Client, condition: &str) -> Waiter<'a> {
        Waiter::new(client, "default", "web".into(), Goal::parse(condition).unwrap(), None).await.unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(300)
    }

    #[test]
    fn goals_read_in_kubectls_words_and_ours() {
        let ready = |status: &str| Goal::Condition { name: "Ready".into(), status: status.into() };
        assert_eq!(Goal::parse("Ready").unwrap(), ready("True"));
        assert_eq!(Goal::parse("condition=Ready").unwrap(), ready("True"));
        assert_eq!(Goal::parse("condition=Ready=false").unwrap(), ready("false"));
        assert_eq!(Goal::parse("delete").unwrap(), Goal::Deleted);
        assert_eq!(Goal::parse("Deleted").unwrap(), Goal::Deleted);
        assert_eq!(Goal::parse("applied").unwrap(), Goal::Applied);
        assert_eq!(
            Goal::parse("happy").unwrap_err().to_string(),
            "error: --for: `happy` is not Ready, Deleted, Applied or condition=NAME[=STATUS]"
        );
    }

    #[tokio::test]
    async fn a_pod_that_comes_later_is_waited_for() {
        let daemon = Daemon::start();
        let client = Client::new(daemon.root.path()).unwrap();
        let waiter = waiter(&client, "Ready").await;
        let board = daemon.board.clone();
        let publish = async {
            sleep(Duration::from_millis(50)).await;
            board.publish(running("web"));
        };
        let (met, ()) = tokio::join!(waiter.run(Instant::now() + Duration::from_secs(5)), publish);
        met.unwrap();
    }

    #[tokio::test]
    async fn time_that_runs_out_is_told_in_kubectls_words() {
        let daemon = Daemon::start();
        let client = Client::new(daemon.root.path()).unwrap();
        let error = waiter(&client, "Ready").await.run(soon()).await.unwrap_err();
        assert_eq!(error.to_string(), "Error from server (NotFound): pods \"web\" not found");
        daemon.board.publish(running("web"));
        let error = waiter(&client, "Deleted").await.run(soon()).await.unwrap_err();
        assert_eq!(error.to_string(), "error: timed out waiting for the condition on pods/web");
    }

    #[tokio::test]
    async fn a_pod_that_goes_is_deleted_and_so_is_one_that_never_was() {
        let daemon = Daemon::start();
        let client = Client::new(daemon.root.path()).unwrap();
        waiter(&client, "Deleted").await.run(soon()).await.unwrap();
        daemon.board.publish(running("web"));
        let waiter = waiter(&client, "Deleted").await;
        let forget = async {
            sleep(Duration::from_millis(50)).await;
            daemon.board.forget(&running("web").manifest.key);
        };
        let (met, ()) = tokio::join!(waiter.run(Instant::now() + Duration::from_secs(5)), forget);
        met.unwrap();
    }

    #[tokio::test]
    async fn a_manifest_is_applied_when_its_hash_is_in_force() {
        let daemon = Daemon::start();
        let client = Client::new(daemon.root.path()).unwrap();
        let file = daemon.root.path().join("web.yaml");
        let text =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b}]}\n";
        std::fs::write(&file, text).unwrap();
        let hash = hash_of(&file, "default", "web", "node1").unwrap();

        let mut view = running("web");
        daemon.board.publish(view.clone());
        let goal = || Goal::Applied;
        let waiter = Waiter::new(&client, "default", "web".into(), goal(), Some(&file)).await.unwrap();
        assert!(waiter.run(soon()).await.is_err());

        let mut manifest = (*view.manifest).clone();
        manifest.hashes.manifest = hash;
        manifest.origin.file = file.clone();
        view.manifest = std::sync::Arc::new(manifest);
        daemon.board.publish(view);
        waiter.run(soon()).await.unwrap();
        let own = Waiter::new(&client, "default", "web".into(), goal(), None).await.unwrap();
        own.run(soon()).await.unwrap();
        std::fs::write(&file, text.replace("image: b", "image: c")).unwrap();
        assert!(own.run(soon()).await.is_err());
    }

    #[test]
    fn a_file_that_cannot_be_applied_says_why_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.yaml");
        let said = |name: &str| hash_of(&file, "default", name, "n").unwrap_err().to_string();
        assert!(said("web").ends_with("x.yaml: No such file or directory (os error 2)"));
        std::fs::write(
            &file,
            "apiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec: {containers: [{name: a, image: b}]}\n",
        )
        .unwrap();
        assert!(said("web").ends_with("x.yaml: there is no pod default/web in this file"));
        assert!(hash_of(&file, "default", "db-n", "n").is_ok());
    }
}
