//! `podling check`: what the daemon would say to manifests, offline.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use super::args::{Check, CheckOutput};
use super::error::say;
use crate::manifest::{self, Code, Diagnostic, ObjectKind, PodKey, ReadOptions, Severity, Verdict};
use crate::pod::capacity::Capacity;
use crate::pod::findings::admission;
use crate::pod::status::Waiting;
use crate::registry::lint_all;
use crate::runtime::profiles;
use crate::settings::{Flags, Settings};
use crate::source::names::{NameClass, classify};
use crate::system::node::{NodeFeatures, node_features};

/// Bytes read of a file: one more than the largest manifest, so that the reader sees that it is too large.
const LONGEST: u64 = manifest::MAX_BYTES as u64 + 1;

/// What a container waits with for something that it names and that is not there.
const UNREADY: &str = "CreateContainerConfigError";

/// Checks, prints, and answers 1 when anything would be refused.
pub(super) fn check(root: PathBuf, args: Check, out: &mut impl Write) -> Outcome {
    let flags = Flags { config: args.config, ..Flags::under(root) };
    let settings = Settings::load(&flags)?;
    // Beside the findings, which are about documents.
    lint_all(&settings).iter().for_each(|finding| say(&format!("warning: {finding}")));
    let options = ReadOptions {
        strict: args.strict || settings.strict,
        name_suffix: settings.append_node_name.then(|| settings.node_name.clone()),
        node_name: settings.node_name.clone(),
        runtime_classes: settings.runtime_classes.keys().cloned().collect(),
        // Of each file by its mode.
        exposed: false,
    };
    let node = Capacity::of(&settings);
    let mut checker = Checker {
        node,
        options,
        extensionless: settings.extensionless,
        seccomp_root: settings.seccomp_root,
        features: node_features(),
        findings: Vec::new(),
        files: 0,
        first: BTreeMap::new(),
    };
    for path in &args.paths {
        checker.path(path);
    }
    match args.output {
        CheckOutput::Json => checker.print_json(out)?,
        CheckOutput::Text => checker.print_text(out)?,
    }
    let refused = checker.findings.iter().any(|f| f.verdict == Verdict::Reject);
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What was found about one document, or about a file that holds none; a line of `-o json`.
#[derive(Debug, Serialize)]
struct Finding {
    file: String,
    line: u32,
    kind: String,
    namespace: String,
    name: String,
    verdict: Verdict,
    messages: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Message {
    severity: Severity,
    code: Code,
    path: String,
    line: u32,
    column: u32,
    text: String,
}

impl From<Diagnostic> for Message {
    fn from(d: Diagnostic) -> Self {
        let Diagnostic { severity, code, path, line, column, text } = d;
        Self { severity, code, path, line, column, text }
    }
}

impl Finding {
    /// What the daemon would hold the pod back for, if it were alone on this node. A cluster's labels and classes
    /// may be meant for other nodes, and a file may come by itself; what takes a change of settings or manifest is an
    /// error.
    fn admission(&mut self, refused: Result<(), Waiting>, known: &[Diagnostic]) {
        let Err(why) = refused else { return };
        let soft = matches!(why.reason.as_str(), "NodeAffinity" | "PriorityClassNotFound" | UNREADY);
        let (severity, verdict) =
            if soft { (Severity::Warning, Verdict::Warn) } else { (Severity::Error, Verdict::Reject) };
        self.messages.push(admission(&why, severity, known, self.line).into());
        self.verdict = self.verdict.max(verdict);
    }
}

struct Checker {
    node: Capacity,
    options: ReadOptions,
    extensionless: bool,
    seccomp_root: PathBuf,
    features: NodeFeatures,
    findings: Vec<Finding>,
    files: usize,
    first: BTreeMap<PodKey, (String, u32)>,
}

/// The file that is checked may not be the one that the daemon will read, so this is no refusal.
fn exposed_secret(line: u32) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        code: Code::Exposed,
        path: String::new(),
        line,
        column: 0,
        text:
            "everybody on this machine can read this file; the daemon takes the Secret only after chmod 0600"
                .to_owned(),
    }
}

/// Whether everybody on the machine may read the file, which the daemon holds against its Secrets.
fn is_exposed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o004 != 0)
}

impl Checker {
    fn path(&mut self, path: &Path) {
        let file = path.display().to_string();
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().take(LONGEST).read_to_end(&mut bytes);
            return self.file("<stdin>".to_owned(), read.map(|_| bytes), false);
        }
        if !path.is_dir() {
            return self.file(file, read(path), is_exposed(path));
        }
        match manifests(path, self.extensionless) {
            Ok(files) => {
                for path in files {
                    self.file(path.display().to_string(), read(&path), is_exposed(&path));
                }
            }
            Err(error) => self.file(file, Err(error), false),
        }
    }

    fn file(&mut self, file: String, content: io::Result<Vec<u8>>, exposed: bool) {
        self.files += 1;
        let bytes = match content {
            Ok(bytes) => bytes,
            Err(error) => return self.findings.push(unreadable(file, &error)),
        };
        for mut document in manifest::read(&bytes, &self.options) {
            if exposed && document.object.as_ref().is_some_and(|o| o.key.kind == ObjectKind::Secret) {
                document.diagnostics.push(exposed_secret(document.line));
            }
            let verdict = document.verdict();
            let mut finding = Finding {
                file: file.clone(),
                line: document.line,
                kind: document.kind,
                namespace: document.namespace,
                name: document.name,
                verdict,
                messages: document.diagnostics.into_iter().map(Message::from).collect(),
            };
            if let Some(pod) = document.pod {
                let overlooked = self.node.overlooked(&pod.pod).into_iter();
                let missing = profiles::lacking(&pod.pod, &self.seccomp_root, &self.features).into_iter();
                let missing = missing.map(|message| Waiting { reason: UNREADY.to_owned(), message });
                let all = overlooked.chain(missing).map(Err);
                for refused in [self.node.could_hold(&pod.pod)].into_iter().chain(all) {
                    finding.admission(refused, &pod.warnings);
                }
                self.note_duplicate(&mut finding, pod.key);
            }
            self.findings.push(finding);
        }
    }

    /// Of two documents for one pod the daemon runs the first; the other waits for its turn.
    fn note_duplicate(&mut self, finding: &mut Finding, key: PodKey) {
        match self.first.get(&key) {
            None => {
                self.first.insert(key, (finding.file.clone(), finding.line));
            }
            Some((file, line)) => {
                finding.messages.push(Message {
                    severity: Severity::Warning,
                    code: Code::Duplicate,
                    path: "metadata.name".to_owned(),
                    line: finding.line,
                    column: 1,
                    text: format!("pod {key} stands in {file}:{line} already; only the first one runs"),
                });
                finding.verdict = finding.verdict.max(Verdict::Warn);
            }
        }
    }

    fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        for finding in &self.findings {
            serde_json::to_writer(&mut *out, finding)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    fn print_text(&self, out: &mut impl Write) -> io::Result<()> {
        for finding in &self.findings {
            for message in &finding.messages {
                writeln!(out, "{}", text_line(&finding.file, message))?;
            }
        }
        let count = |verdict| self.findings.iter().filter(|f| f.verdict == verdict).count();
        let (documents, files) = (self.findings.len(), self.files);
        let s = |n| if n == 1 { "" } else { "s" };
        writeln!(
            out,
            "{documents} document{} in {files} file{}: {} ok, {} with warnings, {} refused",
            s(documents),
            s(files),
            count(Verdict::Ok),
            count(Verdict::Warn),
            count(Verdict::Reject),
        )?;
        out.flush()
    }
}

/// `file:line:col: error: path: text`, without what is not known.
fn text_line(file: &str, message: &Message) -> String {
    let severity = match message.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut line = file.to_owned();
    if message.line > 0 {
        line.push_str(&format!(":{}:{}", message.line, message.column.max(1)));
    }
    line.push_str(&format!(": {severity}: "));
    if !message.path.is_empty() {
        line.push_str(&format!("{}: ", message.path));
    }
    line + &message.text
}

fn unreadable(file: String, error: &io::Error) -> Finding {
    let message = Message {
        severity: Severity::Error,
        code: Code::Syntax,
        path: String::new(),
        line: 0,
        column: 0,
        text: format!("cannot be read: {error}"),
    };
    Finding {
        file,
        line: 0,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        verdict: Verdict::Reject,
        messages: vec![message],
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The files of a directory that the daemon would read, in the order in which it does.
fn manifests(dir: &Path, extensionless: bool) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if classify(&entry.file_name(), extensionless) != NameClass::Manifest {
            continue;
        }
        let path = entry.path();
        // Links count as what they lead to; one that leads nowhere is read, and says so.
        if fs::metadata(&path).map_or(true, |m| m.is_file()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b:1}]}\n";

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn with(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            Self(dir)
        }

        fn check(&self, names: &[&str], output: CheckOutput) -> (String, bool) {
            let paths = names.iter().map(|n| self.0.path().join(n)).collect();
            let args = Check { paths, output, strict: false, config: None };
            let mut out = Vec::new();
            let code = check(self.0.path().join("root"), args, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let prefix = format!("{}/", self.0.path().display());
            (text.replace(&prefix, ""), code == ExitCode::FAILURE)
        }
    }

    #[test]
    fn a_good_manifest_has_only_a_summary() {
        let dir = Dir::with(&[("web.yaml", POD)]);
        let (text, failed) = dir.check(&["web.yaml"], CheckOutput::Text);
        assert_eq!(
            (text.as_str(), failed),
            ("1 document in 1 file: 1 ok, 0 with warnings, 0 refused\n", false)
        );
    }

    #[test]
    fn a_refusal_has_its_place_and_fails_the_command() {
        let dir = Dir::with(&[("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n")]);
        let (text, failed) = dir.check(&["bad.yaml"], CheckOutput::Text);
        assert!(text.starts_with("bad.yaml:"), "{text}");
        assert!(text.contains(": error: "), "{text}");
        assert!(text.ends_with("1 document in 1 file: 0 ok, 0 with warnings, 1 refused\n"), "{text}");
        assert!(failed);
    }

    #[test]
    fn a_directory_is_read_as_the_daemon_reads_it() {
        let db = POD.replace("web", "db");
        let dir = Dir::with(&[
            ("b.yaml", POD),
            ("a.yml", &db),
            ("b.yaml.bak", POD),
            (".c.yaml", POD),
            ("notes.txt", "x"),
        ]);
        let (text, failed) = dir.check(&[""], CheckOutput::Json);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let files: Vec<&str> = lines.iter().map(|l| l["file"].as_str().unwrap()).collect();
        assert_eq!((files, failed), (vec!["a.yml", "b.yaml"], false));
    }

    #[test]
    fn json_has_one_object_a_document() {
        let text = format!("{POD}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: two}}\n");
        let dir = Dir::with(&[("x.yaml", &text)]);
        let (text, failed) = dir.check(&["x.yaml"], CheckOutput::Json);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(
            lines[0],
            serde_json::json!({
                "file": "x.yaml", "line": 1, "kind": "Pod", "namespace": "default", "name": "web",
                "verdict": "ok", "messages": [],
            })
        );
        assert_eq!((lines[1]["verdict"].as_str(), lines[1]["name"].as_str()), (Some("reject"), Some("two")));
        let message = lines[1]["messages"][0].as_object().unwrap();
        for key in ["severity", "path", "line", "column", "text"] {
            assert!(message.contains_key(key), "{key}");
        }
        assert!(failed);
    }

    #[test]
    fn a_pod_that_stands_twice_is_reported_where_it_stands_again() {
        let dir = Dir::with(&[("10.yaml", POD), ("20.yaml", POD)]);
        let (text, failed) = dir.check(&["10.yaml", "20.yaml"], CheckOutput::Text);
        assert_eq!(
            text,
            "20.yaml:1:1: warning: metadata.name: pod default/web stands in 10.yaml:1 already; only the first one runs\n\
             2 documents in 2 files: 1 ok, 1 with warnings, 0 refused\n"
        );
        assert!(!failed);
    }

    #[test]
    fn what_admission_holds_back_is_said_as_the_daemon_says_it() {
        let selects = POD.replace("spec: {", "spec: {nodeSelector: {zone: a}, ");
        let huge = POD.replace("image: b:1", "image: b:1, resources: {requests: {memory: 100Ti}}");
        let dir = Dir::with(&[("a.yaml", &selects), ("b.yaml", &huge)]);
        let (text, failed) = dir.check(&["a.yaml"], CheckOutput::Text);
        assert!(
            text.contains(
                "warning: spec.nodeSelector: NodeAffinity: spec.nodeSelector wants zone=a, and this node"
            ),
            "{text}"
        );
        assert!(!failed);
        let (text, failed) = dir.check(&["b.yaml"], CheckOutput::Text);
        assert!(text.contains("error: spec: OutOfmemory: the pod requests memory 102400Gi"), "{text}");
        assert!(failed);
    }

    #[test]
    fn sysctls_and_seccomp_profiles_that_this_node_does_not_have_are_said_beforehand() {
        let sysctl = "spec: {securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, ";
        let seccomp = "a, securityContext: {seccompProfile: {type: Localhost, localhostProfile: p.json}}, ";
        let dir = Dir::with(&[
            ("a.yaml", &POD.replace("spec: {", sysctl)),
            ("b.yaml", &POD.replace("a, ", seccomp)),
        ]);
        let (text, failed) = dir.check(&["a.yaml"], CheckOutput::Text);
        let wanted = "SysctlForbidden: spec.securityContext.sysctls: forbidden sysctl: \"kernel.msgmax\"";
        assert!(failed && text.contains(wanted), "{text}");
        let (text, failed) = dir.check(&["b.yaml"], CheckOutput::Text);
        let wanted = "warning: spec: CreateContainerConfigError: container a: seccompProfile.localhostProfile \"p.json\": there is no root/";
        assert!(!failed && text.contains(wanted), "{text}");
        let profiles = dir.0.path().join("root/var/lib/podling/seccomp");
        fs::create_dir_all(&profiles).unwrap();
        fs::write(profiles.join("p.json"), "{}").unwrap();
        assert!(dir.check(&["b.yaml"], CheckOutput::Text).0.contains("1 ok"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused() {
        let dir = Dir::with(&[]);
        let (text, failed) = dir.check(&["gone.yaml"], CheckOutput::Text);
        assert!(text.starts_with("gone.yaml: error: cannot be read: No such file or directory"), "{text}");
        assert!(failed);
    }
}
