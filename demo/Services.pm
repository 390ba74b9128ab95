# Starts and stops what the demo needs, all in one private folder and as an ordinary user: PostgreSQL and
# PHP-FPM on sockets in the folder, the backend and httpd on free ports of 127.0.0.1. Everything leaves the
# terminal's process group, so that Ctrl-C reaches only the demo, which then stops it in order.
package Services;
use strict;
use warnings;
use IO::Socket::INET;
use POSIX ();
use Time::HiRes qw(sleep time);

my $patience = 30;    # seconds that a service may take to start or stop

sub new {
    my ($class, $dir) = @_;
    delete @ENV{ grep { /^PG/ } keys %ENV };
    @ENV{qw(PGHOST PGDATABASE PGUSER LC_ALL HOME)} = ($dir, 'demo', 'postgres', 'C', $dir);
    return bless { dir => $dir, apache => apxs('SBINDIR') . '/' . apxs('PROGNAME') }, $class;
}

sub port { $_[0]{port} }

sub start {
    my ($self) = @_;
    my $dir = $self->{dir};
    local $| = 1;
    for my $step (
        [ 'PostgreSQL',        \&start_postgresql ],
        [ 'the tables',        \&make_tables ],
        [ 'PHP-FPM',           \&start_php ],
        [ 'the proxied API',   \&start_backend ],
        [ 'httpd',             \&start_httpd ],
    ) {
        my ($name, $start) = @$step;
        print "  $name ... ";
        $start->($self);
        print "ready\n";
    }
}

sub stop {
    my ($self) = @_;
    my $dir = $self->{dir};
    end("$dir/$_.pid") for qw(httpd backend php);
    end("$dir/pg/postmaster.pid", 'INT');    # INT is PostgreSQL's fast shutdown
}

sub start_postgresql {
    my ($self) = @_;
    my $dir = $self->{dir};
    my $bin = newest('/usr/lib/postgresql/*/bin');
    quiet("$bin/initdb", '-D', "$dir/pg", qw(--username=postgres --auth=trust --encoding=UTF8 --no-sync));
    append("$dir/pg/postgresql.conf", "listen_addresses = ''\nunix_socket_directories = '$dir'\n");
    quiet("$bin/pg_ctl", '-D', "$dir/pg", '-l', "$dir/postgresql.log", '-w', '-t', $patience, 'start');
    quiet("$bin/createdb", 'demo');
}

sub make_tables {
    my ($self) = @_;
    quiet("$self->{dir}/idempotencyctl", 'migrate');
    quiet(qw(psql -X -q -v ON_ERROR_STOP=1 -f), "$self->{dir}/demo/schema.sql");
}

sub start_php {
    my ($self) = @_;
    my $dir = $self->{dir};
    append("$dir/php-fpm.conf", <<"END");
[global]
pid = $dir/php.pid
error_log = $dir/php.log
[demo]
listen = $dir/php.sock
pm = static
pm.max_children = 4
END
    quiet(newest('/usr/sbin/php-fpm*'), '-y', "$dir/php-fpm.conf", '--daemonize');
    wait_for('PHP-FPM', sub { -S "$dir/php.sock" });
}

sub start_backend {
    my ($self) = @_;
    my $dir = $self->{dir};
    my $pid = fork // die "fork: $!\n";
    if ($pid == 0) {
        POSIX::setsid();
        open STDIN,  '<',  '/dev/null';
        open STDOUT, '>>', "$dir/backend.log";
        open STDERR, '>&', \*STDOUT;
        exec "$dir/demo/backend", "$dir/backend.port", "$dir/payments.log" or POSIX::_exit(127);
    }
    append("$dir/backend.pid", "$pid\n");
    wait_for('the proxied API', sub { -s "$dir/backend.port" });
    ($self->{backend}) = slurp("$dir/backend.port") =~ /(\d+)/;
}

sub start_httpd {
    my ($self) = @_;
    my $dir = $self->{dir};
    for my $merchant (qw(acme globex)) {
        quiet('htpasswd', -e "$dir/passwords" ? '-b' : '-bc', "$dir/passwords", $merchant, 'secret');
    }
    my $free = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die "no free port: $!\n";
    $self->{port} = $free->sockport;
    close $free;
    my %define = (DEMO => $dir, MODULES => apxs('LIBEXECDIR'), PORT => $self->{port}, BACKEND => $self->{backend});
    quiet($self->{apache}, '-f', "$dir/demo/httpd.conf", '-k', 'start',
        map { ('-C', "Define $_ $define{$_}") } sort keys %define);
    wait_for('httpd', sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}) });
}

# The ends of the logs, for a reader of a failed run: the folder goes with it.
sub last_words {
    my ($self) = @_;
    my @words;
    for my $log (grep { -s } map { "$self->{dir}/$_.log" } qw(httpd php backend postgresql)) {
        my @lines = split /^/, slurp($log);
        push @words, "--- end of $log\n", @lines > 10 ? @lines[-10 .. -1] : @lines;
    }
    return @words;
}

# ---- helpers

# Runs a command; what it prints is of interest only when it fails.
sub quiet {
    my @command = @_;
    my $pid = open(my $out, '-|') // die "fork: $!\n";
    if ($pid == 0) {
        open STDIN,  '<',  '/dev/null';
        open STDERR, '>&', \*STDOUT;
        exec @command or print("$!\n"), POSIX::_exit(127);
    }
    my $text = join '', <$out>;
    close $out and return;
    die "\n$text$command[0] failed" . ($? & 127 ? " by signal " . ($? & 127) : '') . "\n";
}

sub wait_for {
    my ($what, $condition) = @_;
    my $until = time + $patience;
    while (!$condition->()) {
        die "\n$what is not there after $patience s\n" if time > $until;
        sleep 0.02;
    }
}

# Ends the process of a pid file and waits until it is gone.
sub end {
    my ($file, $signal) = @_;
    my ($pid) = -e $file ? slurp($file) =~ /\A(\d+)/ : ();
    return unless $pid && kill $signal // 'TERM', $pid;
    my $until = time + $patience;
    while (waitpid($pid, POSIX::WNOHANG()) != $pid && kill 0, $pid) {
        kill 'KILL', $pid if time > $until;
        sleep 0.02;
    }
}

sub newest {
    my ($pattern) = @_;
    my @found = sort { ($a =~ /(\d+(?:\.\d+)?)/)[0] <=> ($b =~ /(\d+(?:\.\d+)?)/)[0] } grep { /\d/ } glob $pattern;
    return $found[-1] // die "\nnothing at $pattern: build/install-deps demo installs it\n";
}

sub apxs { my ($value) = `apxs -q $_[0]` =~ /(\S+)/; return $value // die "apxs -q $_[0] says nothing\n" }

sub slurp { my ($file) = @_; open my $in, '<', $file or die "$file: $!\n"; local $/; return scalar <$in> }

sub append { my ($file, $text) = @_; open my $out, '>>', $file or die "$file: $!\n"; print $out $text; close $out }

1;
