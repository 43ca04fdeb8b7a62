use clap::CommandFactory as _;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("podling").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn flags_may_stand_before_and_behind_the_verb() {
    for line in
        ["-n kube --root /r get pods -A", "get -n kube pods --root /r -A", "get pods -n kube -A --root=/r"]
    {
        let cli = parse(line).unwrap();
        let Verb::Get(get) = cli.verb else { panic!("{line}") };
        assert_eq!(cli.root, PathBuf::from("/r"));
        assert_eq!(get.scope.namespace.or(cli.scope.namespace).as_deref(), Some("kube"), "{line}");
        assert!(get.all_namespaces);
    }
}

#[test]
fn the_namespace_of_run_is_containerds() {
    let cli = parse("run --namespace edge --manifest-dir /a --manifest-dir /b -vv").unwrap();
    let Verb::Run(run) = cli.verb else { panic!() };
    assert_eq!(run.namespace.as_deref(), Some("edge"));
    assert_eq!((run.manifest_dir.len(), run.verbose), (2, 2));
    assert!(cli.scope.namespace.is_none());
}

#[test]
fn what_stands_behind_the_dashes_belongs_to_the_command() {
    let Verb::Exec(exec) = parse("exec -it web -c app -- ls -n -t").unwrap().verb else { panic!() };
    assert!(exec.stdin && exec.tty);
    assert_eq!(exec.command, ["ls", "-n", "-t"]);
    assert!(parse("exec web ls").is_err());
}

#[test]
fn durations_and_tails_are_read_as_kubectl_reads_them() {
    let Verb::Wait(wait) = parse("wait pod/web --for=Ready --timeout=1m30s").unwrap().verb else { panic!() };
    assert_eq!(wait.timeout.as_secs(), 90);
    let Verb::Logs(logs) = parse("logs web --tail -1 --since 5m").unwrap().verb else { panic!() };
    assert_eq!((logs.tail, logs.since.unwrap().as_secs()), (-1, 300));
    let error = parse("wait pod/web --for=Ready --timeout=soon").unwrap_err().to_string();
    assert!(error.contains("not a duration such as 30s or 1m30s"), "{error}");
}

#[test]
fn a_pod_is_named_with_or_without_its_kind() {
    assert_eq!(pod_name("web").unwrap(), "web");
    assert_eq!(pod_name("pod/web").unwrap(), "web");
    assert_eq!(pod_name("svc/web").unwrap_err().to_string(), "error: `svc` in svc/web is not pod");
    assert_eq!(pod_name("pod/").unwrap_err().to_string(), "error: \"pod/\" names no pod");
}
