//! What is wrong with manifests, said once: in the log, as events, and to the pods that run on in spite of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::board::{Board, EventType};
use super::capacity::Capacity;
use super::status::Waiting;
use crate::manifest::{Code, Diagnostic, PodKey, PodManifest, Severity};
use crate::source::SourceProblem;

/// Says what is new among the problems of a source, and what is over. A problem that stays is not said again.
/// `file_of` tells the manifest file of a pod.
pub(super) fn announce(
    board: &Board,
    before: &[SourceProblem],
    now: &[SourceProblem],
    file_of: impl Fn(&PodKey) -> Option<PathBuf>,
) {
    for problem in now.iter().filter(|p| !before.iter().any(|old| same(old, p))) {
        let text = line(problem);
        // A backup beside the manifests is worth a line, not a worry.
        let weight = if problem.reason == "Ignored" { EventType::Normal } else { EventType::Warning };
        match weight {
            EventType::Normal => tracing::info!(reason = problem.reason, "{text}"),
            EventType::Warning => tracing::warn!(reason = problem.reason, "{text}"),
        }
        // A directory's trouble concerns the node; telling each of its hundred pods would bury the rest.
        let own = |key: &&PodKey| file_of(key).is_some_and(|file| file == problem.path);
        let concerned: Vec<_> = problem.keeps.iter().filter(own).collect();
        for key in &concerned {
            board.event(weight, problem.reason, Some(key), text.as_str());
        }
        if concerned.is_empty() {
            board.event(weight, problem.reason, None, text);
        }
    }
    // A file may have another problem in place of the one that went; then that is what there is to say.
    let over = before.iter().filter(|old| !old.is_remark() && !now.iter().any(|p| p.path == old.path));
    let mut paths: Vec<_> = over.map(|old| &old.path).collect();
    paths.dedup();
    for path in paths {
        tracing::info!("{}: the problem is over", path.display());
    }
}

/// The pods of a source that run on as last accepted, and why.
pub(super) fn troubles(problems: &[SourceProblem]) -> BTreeMap<PodKey, Waiting> {
    let mut troubles = BTreeMap::new();
    for problem in problems {
        for key in &problem.keeps {
            let why = || Waiting { reason: problem.reason.into(), message: line(problem) };
            troubles.entry(key.clone()).or_insert_with(why);
        }
    }
    troubles
}

/// Says what an accepted manifest was accepted with, unless the one before it was accepted with the same.
pub(super) fn warnings(board: &Board, before: Option<&PodManifest>, manifest: &PodManifest) {
    let known = |d: &Diagnostic| {
        before.is_some_and(|old| old.warnings.iter().any(|o| o.path == d.path && o.text == d.text))
    };
    for finding in manifest.warnings.iter().filter(|d| !known(d)) {
        let file = manifest.origin.file.display();
        let field = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
        let text = format!("{file}:{}:{}: {field}{}", finding.line, finding.column, finding.text);
        tracing::warn!(pod = %manifest.key, "{text}");
        board.event(EventType::Warning, "ManifestWarning", Some(&manifest.key), text);
    }
}

/// What admission says of a manifest, as a finding at the field that it names, so that `check` and the daemon say it
/// alike. `known` are the findings of the same manifest, which have places.
pub fn admission(why: &Waiting, severity: Severity, known: &[Diagnostic], line: u32) -> Diagnostic {
    let field = |c: &char| !c.is_whitespace() && !matches!(c, ':' | '[');
    let path: String = why.message.chars().take_while(field).collect();
    let path = if path.starts_with("spec.") { path } else { "spec".to_owned() };
    // A finding about the field, or about what lies in it, has its place.
    let place = known.iter().find(|d| path.starts_with(&d.path) && d.path.len() > "spec".len());
    let (line, column) = place.map_or((line, 1), |d| (d.line, d.column));
    Diagnostic {
        severity,
        code: Code::Admission,
        path,
        line,
        column,
        text: format!("{}: {}", why.reason, why.message),
    }
}

/// What a cluster would hold against the pod and this node does not.
pub(super) fn overlooked(node: &Capacity, manifest: &PodManifest) -> Vec<Diagnostic> {
    let said = node.overlooked(&manifest.pod);
    let line = manifest.origin.line;
    said.iter().map(|why| admission(why, Severity::Warning, &manifest.warnings, line)).collect()
}

fn same(a: &SourceProblem, b: &SourceProblem) -> bool {
    a.path == b.path && a.reason == b.reason && a.message == b.message
}

/// The message, with the path where it does not name it itself.
fn line(problem: &SourceProblem) -> String {
    let path = problem.path.display().to_string();
    if path.is_empty() || problem.message.contains(&path) {
        return problem.message.clone();
    }
    format!("{path}: {}", problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(path: &str, message: &str, keeps: &[&str]) -> SourceProblem {
        SourceProblem {
            path: path.into(),
            reason: "ParseError",
            message: message.into(),
            diagnostics: Vec::new(),
            keeps: keeps.iter().map(|n| PodKey::new("default", *n)).collect(),
        }
    }

    fn told(board: &Board) -> Vec<(Option<String>, String, u32)> {
        let state = board.subscribe();
        let state = state.borrow();
        let event = |e: &std::sync::Arc<crate::pod::board::Event>| {
            (e.pod.as_ref().map(|k| k.name.clone()), e.message.clone(), e.count)
        };
        state.events.iter().map(event).collect()
    }

    #[test]
    fn a_problem_that_stays_is_said_once() {
        let board = Board::default();
        let first = [problem("/p/a.yaml", "/p/a.yaml:1:1: no", &[])];
        announce(&board, &[], &first, |_| None);
        announce(&board, &first, &first, |_| None);
        assert_eq!(told(&board), [(None, "/p/a.yaml:1:1: no".into(), 1)]);
        let second = [problem("/p/a.yaml", "/p/a.yaml:2:1: no", &[])];
        announce(&board, &first, &second, |_| None);
        assert_eq!(told(&board).len(), 2);
    }

    #[test]
    fn a_problem_is_told_to_the_pods_that_run_on_in_spite_of_it() {
        let board = Board::default();
        let now = [problem("/p/a.yaml", "no", &["web", "db"])];
        announce(&board, &[], &now, |_| Some("/p/a.yaml".into()));
        let text = "/p/a.yaml: no".to_owned();
        assert_eq!(
            told(&board),
            [(Some("web".into()), text.clone(), 1), (Some("db".into()), text.clone(), 1)]
        );
        assert_eq!(troubles(&now)[&PodKey::new("default", "db")].message, text);
    }

    #[test]
    fn the_trouble_of_a_directory_is_an_event_of_the_node() {
        let board = Board::default();
        announce(&board, &[], &[problem("/p", "gone", &["web", "db"])], |_| Some("/p/a.yaml".into()));
        assert_eq!(told(&board), [(None, "/p: gone".into(), 1)]);
    }

    #[test]
    fn warnings_of_an_accepted_manifest_are_said_when_they_are_new() {
        let board = Board::default();
        let finding = |path: &str| Diagnostic {
            severity: crate::manifest::Severity::Warning,
            code: Default::default(),
            path: path.into(),
            line: 7,
            column: 3,
            text: "unknown field".into(),
        };
        let manifest = |paths: &[&str]| PodManifest {
            warnings: paths.iter().map(|p| finding(p)).collect(),
            ..PodManifest::without_file(PodKey::new("default", "web"), Default::default())
        };
        warnings(&board, None, &manifest(&["spec.a"]));
        warnings(&board, Some(&manifest(&["spec.a"])), &manifest(&["spec.a", "spec.b"]));
        let texts: Vec<_> = told(&board).into_iter().map(|(_, text, count)| (text, count)).collect();
        assert_eq!(
            texts,
            [(":7:3: spec.a: unknown field".into(), 1), (":7:3: spec.b: unknown field".into(), 1)]
        );
    }
}
