/* Options, the supervisor of the two ends, and the JSON object.
 *
 * The supervisor holds no DPDK state. It forks the NIC's end and the application's end (one process
 * for the ring peer), bounds them in time, and removes what they could leave: their processes, and
 * one private directory with the socket and DPDK's run-time files. */
#define _GNU_SOURCE
#include "loopback.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rte_cpuflags.h>
#include <rte_version.h>

/* Time allowed beyond warm-up and measurement: loading DPDK, meeting, draining, leaving. */
#define GRACE_MS 20000u
/* 2 MiB pages to be free for both ends together before huge pages are tried. */
#define HUGE_PAGES_NEEDED 128u

volatile sig_atomic_t terminated;

struct supervisor {
    const struct options *options;
    struct shared *shared;
    char directory[96];
    bool huge_pages;
    pid_t nic, application;
    sigset_t signals;
    int interrupted; /* the signal that ended the run, or 0 */
};

static void on_terminate(int signal)
{
    (void)signal;
    terminated = 1;
}

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    remove(path);
    return 0;
}

static void remove_directory(const char *path)
{
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static unsigned run_ms(const struct options *options)
{
    return options->warmup_ms + options->duration_ms + GRACE_MS;
}

/* The body of a forked end. Its output goes to stderr, for stdout is the JSON object's. It dies
 * with the supervisor and, whatever happens, a little after the supervisor's own time limit. */
static void end_body(const struct supervisor *supervisor, bool is_nic, pid_t parent)
{
    struct sigaction terminate = {.sa_handler = on_terminate};
    sigaction(SIGTERM, &terminate, NULL);
    signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the supervisor decides */
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &supervisor->signals, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    alarm(run_ms(supervisor->options) / 1000 + 5);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("RUNTIME_DIRECTORY", supervisor->directory, 1);
    int code = run_end(supervisor->options, supervisor->shared, supervisor->directory, is_nic,
                       supervisor->huge_pages);
    if (getppid() != parent) /* the supervisor was killed: nobody else cleans up */
        remove_directory(supervisor->directory);
    fflush(NULL);
    _exit(code);
}

static pid_t start_end(const struct supervisor *supervisor, bool is_nic)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        end_body(supervisor, is_nic, parent);
    if (child < 0)
        perror("loopback: fork");
    return child;
}

static int exit_code_of(int status)
{
    if (WIFSIGNALED(status))
        fprintf(stderr, "loopback: an end was killed by signal %d (%s)\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

/* Waits for a signal for at most `ms`; notes one that asks the run to end. */
static void sleep_for_signal(struct supervisor *supervisor, unsigned ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    int signal = sigtimedwait(&supervisor->signals, NULL, &limit);
    if (signal > 0 && signal != SIGCHLD)
        supervisor->interrupted = signal;
}

/* Ends a process: by request, and after two seconds by force. */
static int stop_end(pid_t child, bool request)
{
    int status = 0;
    if (request)
        kill(child, SIGTERM);
    for (uint64_t limit = now_ms() + 2000; now_ms() < limit;) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            return exit_code_of(status);
        if (done < 0)
            return EXIT_FAILED;
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return EXIT_FAILED;
}

/* Starts the end that the other connects to, and waits until it listens. */
static int start_listener(struct supervisor *supervisor, uint64_t limit)
{
    bool is_nic = !supervisor->options->variant->application_listens;
    pid_t *child = is_nic ? &supervisor->nic : &supervisor->application;
    *child = start_end(supervisor, is_nic);
    while (*child > 0 && !atomic_load(&supervisor->shared->listening)) {
        int status;
        if (waitpid(*child, &status, WNOHANG) == *child) {
            *child = 0;
            int code = exit_code_of(status);
            return code == EXIT_DONE ? EXIT_FAILED : code;
        }
        if (supervisor->interrupted || now_ms() > limit)
            return EXIT_FAILED;
        sleep_for_signal(supervisor, 5);
    }
    return *child > 0 ? EXIT_DONE : EXIT_FAILED;
}

/* Waits for the application's end; a NIC that dies before it fails the run. */
static int await_application(struct supervisor *supervisor, uint64_t limit)
{
    const pid_t parent = getppid();
    for (;;) {
        int status;
        if (waitpid(supervisor->application, &status, WNOHANG) == supervisor->application) {
            supervisor->application = 0;
            return exit_code_of(status);
        }
        if (supervisor->nic > 0 && !atomic_load(&supervisor->shared->stop) &&
            waitpid(supervisor->nic, &status, WNOHANG) == supervisor->nic) {
            supervisor->nic = 0;
            if (!atomic_load(&supervisor->shared->stop)) {
                fprintf(stderr, "loopback: the NIC's process has ended too early\n");
                return EXIT_FAILED;
            }
        }
        if (now_ms() > limit) {
            fprintf(stderr, "loopback: out of time\n");
            return EXIT_FAILED;
        }
        if (supervisor->interrupted || getppid() != parent)
            return EXIT_FAILED;
        sleep_for_signal(supervisor, 500);
    }
}

static int supervise(struct supervisor *supervisor)
{
    uint64_t limit = now_ms() + run_ms(supervisor->options);
    int code = EXIT_DONE;
    if (supervisor->options->peer != PEER_RING) {
        code = start_listener(supervisor, limit);
        if (code == EXIT_DONE && supervisor->nic <= 0)
            supervisor->nic = start_end(supervisor, true);
    }
    if (code == EXIT_DONE && supervisor->application <= 0)
        supervisor->application = start_end(supervisor, false);
    if (code == EXIT_DONE)
        code = supervisor->application > 0 ? await_application(supervisor, limit) : EXIT_FAILED;
    if (supervisor->application > 0)
        stop_end(supervisor->application, true);
    if (supervisor->nic > 0)
        stop_end(supervisor->nic, code != EXIT_DONE || !atomic_load(&supervisor->shared->stop));
    return code;
}

/* One run with huge or with plain pages, in a private directory of its own. */
static int attempt(struct supervisor *supervisor, bool huge_pages)
{
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] != '/' || strlen(base) > 60)
        base = "/tmp";
    snprintf(supervisor->directory, sizeof supervisor->directory, "%s/conic-peers-XXXXXX", base);
    if (mkdtemp(supervisor->directory) == NULL) { /* mode 0700 */
        fprintf(stderr, "loopback: %s: %s\n", supervisor->directory, strerror(errno));
        return EXIT_FAILED;
    }
    supervisor->huge_pages = huge_pages;
    supervisor->nic = supervisor->application = 0;
    memset(supervisor->shared, 0, sizeof *supervisor->shared);
    int code = supervise(supervisor);
    remove_directory(supervisor->directory);
    return code;
}

static bool huge_pages_free(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    if (file != NULL) {
        if (fscanf(file, "%lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return pages >= HUGE_PAGES_NEEDED;
}

static void print_result(const struct options *options, const struct result *result, bool huge_pages)
{
    double mpps = (double)result->received / result->duration_s / 1e6;
    printf("{\"interface\": \"%s\", \"variant\": \"%s\", \"packet_size\": %u, \"window\": %u, "
           "\"burst\": %u, \"nic_burst\": %u, \"ring_size\": %u, \"mpps\": %.4f, \"gbps\": %.4f, "
           "\"latency_ns\": {\"min\": %.1f, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}, "
           "\"lost\": %llu, \"reordered\": %llu, \"corrupted\": %llu, \"received\": %llu, "
           "\"duration_s\": %.6f, \"cores\": [%u, %u], \"huge_pages\": %s, \"library\": \"%s\"}\n",
           options->peer_name, options->variant->name, options->packet_size, options->window,
           options->burst, options->nic_burst, options->ring_size, mpps,
           mpps * options->packet_size * 8 / 1000, result->minimum_ns, result->p50_ns,
           result->p99_ns, result->p999_ns, (unsigned long long)result->lost,
           (unsigned long long)result->reordered, (unsigned long long)result->corrupted,
           (unsigned long long)result->received, result->duration_s, options->application_core,
           options->nic_core, huge_pages ? "true" : "false", rte_version());
}

static void print_use(FILE *to)
{
    fprintf(to,
            "use: loopback --peer memif|memif-zero-copy|vhost-user|vhost-user-packed|ring\n"
            "  --packet-size BYTES   60 to 9600 (64)\n"
            "  --window PACKETS      in flight at most, 1 to 4096 (256)\n"
            "  --burst PACKETS       a call of the application, 1 to 256 (32)\n"
            "  --nic-burst PACKETS   a call of the NIC (as --burst, at least 64)\n"
            "  --duration-ms MS      measured, 1 to 60000 (1000)\n"
            "  --warmup-ms MS        before it, 0 to 10000 (200)\n"
            "  --cores APP,NIC       two different cores (the first two allowed)\n"
            "  --variant NAME        how the peer is set up (the fastest; a wrong name lists them)\n"
            "  --ring-size SLOTS     a power of two, 64 to 8192 (the variant's)\n"
            "  --buffer-size BYTES   memif's shared buffers (2048, or what the packet needs)\n"
            "  --huge-pages MODE     auto, yes or no (auto: when enough are free)\n"
            "  --fault KIND          drop, corrupt or crash: the NIC misbehaves, to test the checks\n");
}

static bool parse_number(const char *name, const char *text, unsigned low, unsigned high,
                         unsigned *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < (long)low || number > (long)high) {
        fprintf(stderr, "loopback: --%s: %s is not a number from %u to %u\n", name, text, low, high);
        return false;
    }
    *value = (unsigned)number;
    return true;
}

static bool parse_choice(const char *name, const char *text, const char *const *choices,
                         unsigned count, unsigned *value)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(text, choices[i]) == 0) {
            *value = i;
            return true;
        }
    fprintf(stderr, "loopback: --%s: no such choice: %s\n", name, text);
    return false;
}

/* The named variant of the peer, or without a name the first that this processor can run. */
static bool choose_variant(struct options *options, const char *name)
{
    bool avx512 = rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512F) > 0;
    for (unsigned i = 0; i < variant_count; i++) {
        const struct variant *variant = &variants[i];
        bool wanted = name != NULL ? strcmp(name, variant->name) == 0
                                   : avx512 || !variant->needs_avx512;
        if (variant->peer == options->peer && wanted) {
            options->variant = variant;
            return true;
        }
    }
    fprintf(stderr, "loopback: --variant: %s has only", options->peer_name);
    for (unsigned i = 0; i < variant_count; i++)
        if (variants[i].peer == options->peer)
            fprintf(stderr, " %s", variants[i].name);
    fprintf(stderr, "\n");
    return false;
}

/* Checks the two cores against the ones this process may use, or picks them. */
static bool choose_cores(struct options *options, const char *text)
{
    cpu_set_t allowed;
    char rest;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        fprintf(stderr, "loopback: needs two cores\n");
        return false;
    }
    if (text == NULL) {
        unsigned found[2], count = 0;
        for (unsigned core = 0; count < 2; core++)
            if (CPU_ISSET(core, &allowed))
                found[count++] = core;
        options->application_core = found[0];
        options->nic_core = found[1];
        return true;
    }
    unsigned *app = &options->application_core, *nic = &options->nic_core;
    if (sscanf(text, "%u,%u%c", app, nic, &rest) != 2 || *app == *nic || *app >= CPU_SETSIZE ||
        *nic >= CPU_SETSIZE || !CPU_ISSET(*app, &allowed) || !CPU_ISSET(*nic, &allowed)) {
        fprintf(stderr, "loopback: --cores: %s is not two different cores of those allowed\n", text);
        return false;
    }
    return true;
}

struct texts { const char *variant, *cores; };

static bool parse_option(const char *name, const char *text, struct options *options,
                         struct texts *texts)
{
    static const char *const peers[] = {"memif", "memif-zero-copy", "vhost-user",
                                        "vhost-user-packed", "ring"};
    static const char *const faults[] = {"none", "drop", "corrupt", "crash"};
    static const char *const huge[] = {"auto", "yes", "no"};
    const struct { const char *name; unsigned low, high, *value; } numbers[] = {
        {"packet-size", MIN_PACKET, MAX_PACKET, &options->packet_size},
        {"window", 1, MAX_WINDOW, &options->window},
        {"burst", 1, MAX_BURST, &options->burst},
        {"nic-burst", 1, MAX_BURST, &options->nic_burst},
        {"duration-ms", 1, 60000, &options->duration_ms},
        {"warmup-ms", 0, 10000, &options->warmup_ms},
        {"ring-size", 64, 8192, &options->ring_size},
        {"buffer-size", 64, 16384, &options->buffer_size},
    };
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return parse_number(name, text, numbers[i].low, numbers[i].high, numbers[i].value);
    unsigned choice;
    if (strcmp(name, "variant") == 0)
        texts->variant = text;
    else if (strcmp(name, "cores") == 0)
        texts->cores = text;
    else if (strcmp(name, "peer") == 0) {
        if (!parse_choice(name, text, peers, 5, &choice))
            return false;
        options->peer = (enum peer_kind)choice;
        options->peer_name = peers[choice];
    } else if (strcmp(name, "fault") == 0) {
        if (!parse_choice(name, text, faults, 4, &choice))
            return false;
        options->fault = (enum fault)choice;
    } else {
        if (!parse_choice(name, text, huge, 3, &choice))
            return false;
        options->huge = (enum huge)choice;
    }
    return true;
}

/* Fills in what follows from other options, and checks relations between them. */
static bool complete(struct options *options, const struct texts *texts)
{
    if (options->peer_name == NULL) {
        fprintf(stderr, "loopback: --peer is needed\n");
        return false;
    }
    if (!choose_variant(options, texts->variant) || !choose_cores(options, texts->cores))
        return false;
    if (options->nic_burst == 0)
        options->nic_burst = options->burst < 64 ? 64 : options->burst;
    if (options->ring_size == 0)
        options->ring_size = options->variant->ring_size;
    if ((options->ring_size & (options->ring_size - 1)) != 0) {
        fprintf(stderr, "loopback: --ring-size: %u is not a power of two\n", options->ring_size);
        return false;
    }
    if (options->buffer_size == 0)
        options->buffer_size = options->packet_size > 2048 ? (options->packet_size + 63) / 64 * 64
                                                           : 2048;
    return true;
}

static int parse_options(int count, char **arguments, struct options *options)
{
    static const char *const names[] = {"peer", "packet-size", "window", "burst", "nic-burst",
                                        "duration-ms", "warmup-ms", "cores", "variant",
                                        "ring-size", "buffer-size", "huge-pages", "fault", "help"};
    enum { NAMES = sizeof names / sizeof names[0] };
    struct option table[NAMES + 1] = {0};
    struct texts texts = {0};
    for (unsigned i = 0; i < NAMES; i++)
        table[i] = (struct option){names[i], i + 1 < NAMES ? required_argument : no_argument, NULL, 1};
    int index, found;
    while ((found = getopt_long(count, arguments, "", table, &index)) != -1) {
        if (found != 1 || index + 1 == NAMES) {
            print_use(found == 1 ? stdout : stderr);
            exit(found == 1 ? EXIT_DONE : EXIT_USE);
        }
        if (!parse_option(names[index], optarg, options, &texts))
            return EXIT_USE;
    }
    if (optind != count) {
        fprintf(stderr, "loopback: not an option: %s\n", arguments[optind]);
        return EXIT_USE;
    }
    return complete(options, &texts) ? EXIT_DONE : EXIT_USE;
}

static void block_signals(sigset_t *signals)
{
    const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigemptyset(signals);
    for (unsigned i = 0; i < sizeof blocked / sizeof blocked[0]; i++)
        sigaddset(signals, blocked[i]);
    sigprocmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int count, char **arguments)
{
    struct options options = {.packet_size = 64, .window = 256, .burst = 32,
                              .duration_ms = 1000, .warmup_ms = 200};
    int code = parse_options(count, arguments, &options);
    if (code != EXIT_DONE)
        return code;
    struct supervisor supervisor = {.options = &options};
    supervisor.shared = mmap(NULL, sizeof *supervisor.shared, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (supervisor.shared == MAP_FAILED) {
        perror("loopback: mmap");
        return EXIT_FAILED;
    }
    block_signals(&supervisor.signals);
    bool huge_pages = options.huge == HUGE_YES || (options.huge == HUGE_AUTO && huge_pages_free());
    code = attempt(&supervisor, huge_pages);
    if (code == EXIT_ENVIRONMENT && huge_pages && options.huge == HUGE_AUTO) {
        fprintf(stderr, "loopback: trying plain pages\n");
        code = attempt(&supervisor, huge_pages = false);
    }
    if (supervisor.interrupted != 0)
        return 128 + supervisor.interrupted;
    if (code != EXIT_DONE)
        return code == EXIT_ENVIRONMENT ? EXIT_FAILED : code;
    const struct result *result = &supervisor.shared->result;
    print_result(&options, result, huge_pages);
    if (result->corrupted != 0 || result->reordered != 0) {
        fprintf(stderr, "loopback: packets came back damaged or out of order\n");
        return EXIT_FAILED;
    }
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}
