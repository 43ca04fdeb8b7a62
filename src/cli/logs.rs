//! `podling logs`.

use std::io::Write as _;
use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::Outcome;
use super::args::{Logs, pod_name};
use super::client::{Client, Stream};
use super::error::{CliError, say};
use crate::server::query::Query;

/// Lines of several containers that wait to be printed.
const QUEUE: usize = 16;
/// Annotation with which a manifest names the container that people mean.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

pub(super) async fn logs(client: Client, namespace: String, args: Logs) -> Outcome {
    let name = pod_name(&args.pod)?.to_owned();
    let path = Client::pod_path(&namespace, &name);
    let pod: Pod = client.get(&path, &Query::default()).await?;
    let containers = if args.all_containers {
        names(&pod)
    } else {
        vec![pick(&pod, args.container.as_deref().or(args.named.as_deref()))]
    };
    let query = query(&args);
    let prefix = |container: &str| args.prefix.then(|| format!("[pod/{name}/{container}] "));
    let mut streams = Vec::with_capacity(containers.len());
    let several = containers.len() > 1;
    for container in &containers {
        let mut query = query.clone();
        query.add("container", container);
        match client.stream(&format!("{path}/log"), &query).await {
            Ok(stream) => streams.push((stream, prefix(container))),
            // One that has nothing to show is no reason to keep the others back.
            Err(error @ CliError::Server { .. }) if several => say(&error.to_string()),
            Err(error) => return Err(error),
        }
    }
    if args.follow && streams.len() > 1 {
        return together(streams).await;
    }
    for (stream, prefix) in streams {
        print(stream, prefix.as_deref()).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn query(args: &Logs) -> Query {
    let mut query = Query::default();
    let flags = [("follow", args.follow), ("previous", args.previous), ("timestamps", args.timestamps)];
    for (name, _) in flags.into_iter().filter(|(_, on)| *on) {
        query.add(name, "true");
    }
    if let Ok(lines) = u64::try_from(args.tail) {
        query.add("tailLines", lines);
    }
    if let Some(since) = args.since {
        // Whole seconds are all the parameter takes; rather a little too much than too little.
        query.add("sinceSeconds", since.as_secs() + u64::from(since.subsec_nanos() > 0));
    }
    if let Some(time) = args.since_time {
        query.add("sinceTime", time);
    }
    query
}

/// Init containers, then containers: the order in which they ran.
fn names(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter();
    let init = spec.clone().flat_map(|s| s.init_containers.iter().flatten());
    init.chain(spec.flat_map(|s| &s.containers)).map(|c| c.name.clone()).collect()
}

/// The container that is meant: the one asked for, the one the manifest names, the only or first one.
/// A choice among several is told, in kubectl's words.
pub(super) fn pick(pod: &Pod, wanted: Option<&str>) -> String {
    if let Some(wanted) = wanted {
        return wanted.to_owned();
    }
    let (default, note) = default_container(pod);
    if let Some(note) = note {
        say(&note);
    }
    default
}

fn default_container(pod: &Pod) -> (String, Option<String>) {
    let annotated = pod.metadata.annotations.as_ref().and_then(|a| a.get(DEFAULT_CONTAINER));
    let all = names(pod);
    if let Some(name) = annotated.filter(|name| all.contains(name)) {
        return (name.clone(), None);
    }
    let Some(spec) = pod.spec.as_ref() else { return (String::new(), None) };
    let first = spec.containers.first().map(|c| c.name.clone()).unwrap_or_default();
    if all.len() < 2 {
        return (first, None);
    }
    let main = spec.containers.iter().map(|c| c.name.clone());
    let init = spec.init_containers.iter().flatten().map(|c| format!("{} (init)", c.name));
    let choice: Vec<String> = main.chain(init).collect();
    let note = format!("Defaulted container {first:?} out of: {}", choice.join(", "));
    (first, Some(note))
}

async fn print(mut stream: Stream, prefix: Option<&str>) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match prefix {
        None => {
            while let Some(chunk) = stream.chunk().await? {
                out.write_all(&chunk)?;
                out.flush()?;
            }
        }
        Some(prefix) => {
            while let Some(line) = stream.line().await? {
                out.write_all(&[prefix.as_bytes(), &line].concat())?;
                out.flush()?;
            }
        }
    }
    Ok(())
}

/// Follows several logs at once, whole lines at a time.
async fn together(streams: Vec<(Stream, Option<String>)>) -> Outcome {
    let (sender, mut lines) = mpsc::channel(QUEUE);
    for (mut stream, prefix) in streams {
        let sender = sender.clone();
        let prefix = prefix.unwrap_or_default().into_bytes();
        tokio::spawn(async move {
            loop {
                let line = match stream.line().await {
                    Ok(Some(line)) => Ok([prefix.as_slice(), &line].concat()),
                    Ok(None) => return,
                    Err(error) => Err(error),
                };
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut out = std::io::stdout().lock();
    while let Some(line) = lines.recv().await {
        out.write_all(&line?)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotation: Option<&str>, init: &[&str], containers: &[&str]) -> Pod {
        let list = |n: &[&str]| n.iter().map(|n| serde_json::json!({ "name": n })).collect::<Vec<_>>();
        let annotations = annotation.map(|a| serde_json::json!({ DEFAULT_CONTAINER: a }));
        serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web", "annotations": annotations },
            "spec": { "initContainers": list(init), "containers": list(containers) },
        }))
        .unwrap()
    }

    #[test]
    fn the_only_container_needs_no_words_and_a_choice_is_told() {
        assert_eq!(default_container(&pod(None, &[], &["app"])), ("app".into(), None));
        assert_eq!(
            default_container(&pod(None, &["setup"], &["app", "side"])),
            ("app".into(), Some("Defaulted container \"app\" out of: app, side, setup (init)".into()))
        );
    }

    #[test]
    fn a_manifest_may_name_the_container_that_is_meant() {
        assert_eq!(default_container(&pod(Some("side"), &[], &["app", "side"])), ("side".into(), None));
        assert_eq!(default_container(&pod(Some("gone"), &[], &["app"])).0, "app");
    }
}
