package Idem::Bench;

# What the benchmarks share: servers with and without the module, other libraries' servers, one measurement of each
# kind with its effects counted, and the processor time it took. A target is a hash: name, port, count (code: executions
# so far), pids (the roots of its process trees), replays (1: known keys do not run).

use strict;
use warnings;
use Idem::Test ();
use Idem::Util;
use IO::Socket::UNIX;
use POSIX ();
use Time::HiRes qw(time);

use constant AUTHORITY => 'bench.example'; # it is part of a request's fingerprint
use constant WARM_UP => 1; # seconds in which pgbench's clients connect and plan, which those of the module have done
use constant BODY => '{"amount":1999,"currency":"eur","source":"tok_visa","description":"one of many"}';

# More threads than connections: a child whose threads are all at work closes connections that are kept alive.
my %SERVER = (mpm_config => "ServerLimit 2\nStartServers 2\nThreadsPerChild 80\nThreadLimit 80\nMaxRequestWorkers 160\n"
    . "MinSpareThreads 1\nMaxSpareThreads 160\n");
my %POSTGRES = (shared_buffers => '128MB', max_wal_size => '4GB', checkpoint_timeout => '30min', max_connections => 200);

# new(seconds => of one measurement, faults => [])
sub new { my ($class, %arg) = @_; return bless { seconds => 2, faults => [], runs => 0, peers => source_dir() . '/t/bench/peers', %arg }, $class }

sub fault { my ($self, $words) = @_; push @{ $self->{faults} }, $words }

# ---------------------------------------------------------------- servers

sub configuration {
    my ($module, $lines, $tenant) = @_;
    return sub {
        my ($t) = @_;
        my $file = $t->root . '/mod_bench.so';
        File::Copy::copy(needed(out_dir() . '/mod_bench.so'), $file) or die "copy: $!\n";
        chmod 0644, $file;
        my $route = $module ? join("\n    ", '', 'IdempotencyRoute bench', 'IdempotencyKey Optional', 'IdempotencyTenant ' . ($tenant // 'server'),
            'IdempotencyPrincipal env:caller', 'IdempotencyTrustEnv caller tenant') . "\n" : '';
        return "LoadModule bench_module $file\nMaxKeepAliveRequests 0\nKeepAlive On\nSetEnvIf Request_URI ^ caller=bench\nSetEnvIf X-Tenant ^(t[0-9]+)\$ tenant=\$1\n"
            . "CustomLog /dev/null test\nLogLevel warn\n$lines"
            . "<Location \"/bench\">\n    SetHandler bench$route\n</Location>\n"
            . join '', map { "<Location \"/$_\">\n    SetHandler bench-$_\n</Location>\n" } qw(count reserve);
    };
}

# httpd: server(name, module => 0 | 1, cache => provider (None where the directive is there), pg => a cluster that is there,
# lines => more configuration, tenant => its source)
sub server {
    my ($self, $name, %arg) = @_;
    my $cache = $arg{module} && $self->has_cache ? 'IdempotencyReplayCache ' . ($arg{cache} // 'None') . "\n" : '';
    my $t = Idem::Test->new(%SERVER, config => configuration($arg{module}, $cache . ($arg{lines} // ''), $arg{tenant}),
        ($arg{module} ? (pg_arg => { settings => { %POSTGRES, %{ $arg{settings} || {} } } }) : (module => 0, store => 0)),
        ($arg{pg} ? (pg => $arg{pg}) : ()), modules => ['socache_shmcb'], db_user => $arg{module} ? 'web' : undef);
    $self->owner($t->pg) if $arg{module} && !$arg{pg};
    return { name => $name, t => $t, port => $t->httpd->port, module => $arg{module}, replays => $arg{module},
        pids => [ $t->httpd->pid, $arg{module} ? $t->pg->pid : () ],
        count => sub { 0 + $t->client->get('/count', user => undef)->body } };
}

# Does this build have a replay cache?
sub has_cache { return slurp(out_dir() . '/mod_idempotency.so') =~ /IdempotencyReplayCache/ ? 1 : 0 }

# The owner of what pgbench reserves, alive for a day.
sub owner {
    my ($self, $pg) = @_;
    $pg->do("INSERT INTO idempotency_owners (owner, host, pid, started_at, seen_at) VALUES"
        . " ('00000000-0000-7000-8000-000000000001', 'pgbench', 1, now(), now() + interval '1 day')");
}

# Redis as fast as it goes: nothing is written to disk.
sub redis {
    my ($self) = @_;
    my $folder = own_folder('redis');
    my $pid = spawn(self => 1, session => 1, dir => $folder, out => "$folder/log", cmd => [ '/usr/bin/redis-server', '--port', 0,
        '--unixsocket', "$folder/socket", '--save', '', '--appendonly', 'no', '--daemonize', 'no', '--dir', $folder ]);
    at_end(sub { end_process($pid, 'TERM', 10) });
    wait_for(sub { IO::Socket::UNIX->new(Peer => "$folder/socket") }, 10) or die "redis does not start:\n" . slurp("$folder/log");
    return { pid => $pid, socket => "$folder/socket" };
}

# A library of the same kind, in as many processes as there are cores.
sub peer {
    my ($self, $kind, $redis, $workers) = @_;
    my $folder = own_folder('peer');
    spew("$folder/log", '');
    my $port = free_port();
    my $pid = spawn(self => 1, session => 1, dir => $folder, out => "$folder/log", env => { NODE_ENV => 'production' },
        cmd => [ '/usr/bin/env', 'node', "$self->{peers}/server.js", $kind, $port, $redis->{socket}, $workers ]);
    at_end(sub { end_process($pid, 'TERM', 10) });
    wait_for(sub { slurp("$folder/log") =~ /^ready/m || !alive($pid) }, 20) && alive($pid) or die "$kind does not start:\n" . slurp("$folder/log");
    my $client = Idem::Client->new(port => $port);
    return { name => $kind, port => $port, client => $client, replays => $kind ne 'none', pids => [ $pid, $redis->{pid} ],
        count => sub { 0 + $client->get('/count')->body } };
}

# ---------------------------------------------------------------- processor time

# Seconds that these processes, all below them and all that have ended there have used so far.
sub processor {
    my (@roots) = @_;
    my (%below, %ticks);
    my $sum = 0;
    opendir(my $proc, '/proc') or die "/proc: $!\n";
    for my $pid (grep { /^\d+$/ } readdir $proc) {
        open(my $fh, '<', "/proc/$pid/stat") or next;
        my @field = split / /, (<$fh> // next) =~ s/^.*\) //sr;
        push @{ $below{ $field[1] } }, $pid;
        $ticks{$pid} = $field[11] + $field[12] + $field[13] + $field[14];
    }
    while (@roots) {
        my $pid = shift @roots;
        $sum += $ticks{$pid} // 0;
        push @roots, @{ $below{$pid} || [] };
    }
    return $sum / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# ---------------------------------------------------------------- measurements

# The known keys get their answers.
sub know {
    my ($self, $target, $keys) = @_;
    my $client = Idem::Client->new(port => $target->{port});
    for my $n (0 .. ($keys // 64) - 1) {
        my $res = $client->post('/bench', host => AUTHORITY, key => "known-$n", type => 'application/json', body => BODY);
        die "$target->{name}: " . $res->status . "\n" if $res->status != 200;
    }
}

# Executions once nothing is under way any more.
sub settled_count {
    my ($target) = @_;
    my $last = -1;
    wait_for(sub { my $now = $target->{count}->(); my $same = $now == $last; $last = $now; $same }, 5);
    return $last;
}

# wrk for a while. { requests, seconds, p50, p99 (ms), effects, processor (s) }
sub load {
    my ($self, $target, $keys, $connections, %more) = @_;
    my $run = 'run' . ++$self->{runs};
    my $before = settled_count($target);
    my $begun = time;
    my $used = processor(@{ $target->{pids} });
    my ($status, $said) = run(self => 1, timeout => $self->{seconds} + 60, env => { KEYS => $keys, RUN => $run, AUTHORITY => AUTHORITY, %{ $more{env} || {} } },
        cmd => [ 'wrk', '-t', $connections > 1 ? 2 : 1, '-c', $connections, '-d', "$self->{seconds}s", '--timeout', '10s', '-s',
        source_dir() . '/t/bench/requests.lua', "http://127.0.0.1:$target->{port}/bench" ]);
    my ($requests, $duration, $p50, $p99, $errors) = $said =~ /^RESULT (\d+) (\d+) (\d+) (\d+) (.*)/m or die "wrk: $said\n";
    $used = processor(@{ $target->{pids} }) - $used;
    # operation ids begin with their time: the index finds them among ten million
    my $first = sprintf('%012x', ($begun - 1) * 1000) =~ s/^(.{8})(.{4})$/$1-$2-7000-8000-000000000000/r;
    my $records = sub { $target->{t}->record_count("operation_id >= '$first' AND idem_key LIKE '$run-%'" . ($_[0] // '')) };
    my $recorded = $keys eq 'fresh' && $target->{module};
    wait_for(sub { !$records->(' AND settled_at IS NULL') }, 10) if $recorded; # what wrk has left
    my $effects = settled_count($target) - $before;
    my $what = "$target->{name}, $keys keys, $connections connections";
    $self->fault("$what: errors: $errors") if $errors =~ /[1-9]/;
    if ($keys eq 'known' && $target->{replays}) {
        $self->fault("$what: $effects effects of $requests replays") if $effects;
    }
    else {
        $self->fault("$what: $effects effects of $requests requests") if $effects < $requests || $effects > $requests + $connections;
    }
    if ($recorded && $records->() != $effects) {
        $self->fault("$what: $effects effects, " . $records->() . ' records');
    }
    return { requests => $requests, seconds => $duration / 1e6, p50 => $p50 / 1000, p99 => $p99 / 1000, effects => $effects, processor => $used };
}

sub percentile { my ($p, @sorted) = @_; return $sorted[ int($p / 100 * $#sorted) ] }

# One of the statement scripts (t/bench/statements.c), by pgbench, prepared. The same hash; effects: records settled.
sub pgbench {
    my ($self, $t, $kind, $connections, %arg) = @_;
    my $folder = own_folder('pgbench');
    my ($status, $script) = run(cmd => [ out_dir() . '/bench-statements', $kind ], self => 1);
    die $script if $status;
    spew("$folder/script", $script, 0644);
    my $settled = sub { $t->record_count("route = 'bench.pgbench' AND status = 'SUCCEEDED'") };
    my $before = $settled->();
    my @define = map { ('-D', "$_=$arg{define}{$_}") } sort keys %{ $arg{define} || {} };
    my $pid = spawn(env => $t->pg->env(user => 'web'), dir => $folder, out => "$folder/said", cmd => [ $t->pg->{bin} . '/pgbench',
        '-n', '-M', 'prepared', '-c', $connections, '-j', $connections > 1 ? 2 : 1, '-T', $self->{seconds} + WARM_UP, @define,
        '-D', 'alias=' . $t->pg->value('SELECT alias_version FROM idempotency_control'), '-f', "$folder/script", '-l', '--log-prefix=times' ]);
    Time::HiRes::sleep(WARM_UP);
    my ($begun, $used, $status_at_end) = (time, processor($t->pg->pid));
    if (!wait_for(sub { waitpid($pid, POSIX::WNOHANG()) == $pid and defined($status_at_end = $?) }, $self->{seconds} + 60) || $status_at_end) {
        end_process($pid, 'KILL', 5) unless defined $status_at_end;
        die 'pgbench: ' . slurp("$folder/said");
    }
    $used = processor($t->pg->pid) - $used;
    # client, number, microseconds, script, end: seconds, microseconds
    my @lines = map { map { [split] } split /\n/, slurp($_) } glob "$folder/times*";
    my @ends = sort { $a <=> $b } grep { $_ >= $begun } map { $_->[4] + $_->[5] / 1e6 } @lines;
    my @times = sort { $a <=> $b } map { $_->[2] } grep { $_->[4] + $_->[5] / 1e6 >= $begun } @lines;
    @times or die "pgbench $kind did nothing in $self->{seconds} s:\n" . slurp("$folder/said");
    my $effects = $settled->() - $before;
    my $half = $t->record_count("route = 'bench.pgbench' AND status <> 'SUCCEEDED'");
    $self->fault("pgbench $kind: $effects settled of " . @lines) if $kind eq 'fresh' && ($effects < @lines || $half);
    return { requests => scalar @times, seconds => $ends[-1] - $begun, p50 => percentile(50, @times) / 1000, p99 => percentile(99, @times) / 1000,
        effects => $kind eq 'fresh' ? scalar @times : 0, processor => $used };
}

# How often n requests with one key, sent at once, run.
sub equals {
    my ($self, $target, $n) = @_;
    my $client = Idem::Client->new(port => $target->{port});
    my $before = settled_count($target);
    my @answers = $client->parallel(([ POST => '/bench', host => AUTHORITY, key => 'equal-' . $target->{name} . ++$self->{runs}, type => 'application/json',
        body => BODY ]) x $n);
    my %status;
    $status{ $_->status }++ for @answers;
    return { effects => settled_count($target) - $before, statuses => \%status };
}

# Several rounds as one: requests and effects are summed, latencies are the median of the rounds.
sub together {
    my (@rounds) = @_;
    my %all = map { my $name = $_; my $sum = 0; $sum += $_->{$name} for @rounds; ($name => $sum) } qw(requests seconds effects processor);
    for my $name (qw(p50 p99)) {
        my @sorted = sort { $a <=> $b } map { $_->{$name} } @rounds;
        $all{$name} = $sorted[ $#sorted / 2 ];
    }
    $all{rate} = $all{requests} / $all{seconds};
    $all{cost} = $all{processor} / $all{requests} * 1e6; # microseconds of processor time a request
    return \%all;
}

# What the figures were taken on.
sub machine {
    my ($self, %more) = @_;
    my $version = sub { my ($pattern, @cmd) = @_; my ($status, $said) = run(cmd => \@cmd, self => 1); return $said =~ $pattern ? $1 : undef };
    my ($model) = slurp('/proc/cpuinfo') =~ /^model name\s*:\s*(.+)/m;
    my ($memory) = slurp('/proc/meminfo') =~ /^MemTotal:\s*(\d+)/m;
    my ($system) = slurp('/etc/os-release') =~ /^PRETTY_NAME="?([^"\n]+)/m;
    return { cores => scalar(() = slurp('/proc/cpuinfo') =~ /^processor/mg), model => $model, memory_gib => int($memory / 1048576 + 0.5),
        system => $system, kernel => (POSIX::uname())[2], date => POSIX::strftime('%Y-%m-%d', gmtime),
        postgresql => $version->(qr/(\d+\.\d+)/, (sort glob '/usr/lib/postgresql/*/bin/postgres')[-1], '--version'),
        httpd => $version->(qr{Apache/(\S+)}, '/usr/sbin/apache2', '-v'), %more };
}

sub busy { return slurp('/proc/loadavg') =~ s/\s+\S+\s+\S+\s*\z//r }

1;
