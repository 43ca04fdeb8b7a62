fn main() -> std::process::ExitCode {
    podling::cli::main()
}
