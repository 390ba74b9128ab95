package Idem::Util;

# Small things every part of the harness needs: a private folder, the account that servers run as,
# child processes that are surely ended, files, ports, and waiting for a condition.

use strict;
use warnings;
use Cwd ();
use Exporter 'import';
use File::Basename ();
use File::Path ();
use File::Temp ();
use IO::Handle;
use IO::Socket::INET;
use POSIX ();
use Time::HiRes qw(sleep time);

our @EXPORT = qw(account alive at_end build_module end_process free_port give needed out_dir own_folder pids_below
                 run slurp source_dir spawn spew tail wait_for);

use constant ACCOUNT => 'mod-idempotency';

my $owner = $$;
my @at_end;
my $folders = 0;

# The repository: t/lib/Idem/Util.pm is three folders below it.
sub source_dir { Cwd::abs_path(File::Basename::dirname(__FILE__) . '/../../..') }

# Where `make` put its results; OUT of the make command line is handed on as IDEM_OUT.
sub out_dir {
    my $out = $ENV{IDEM_OUT} || 'out';
    return $out =~ m{^/} ? $out : source_dir() . "/$out";
}

sub needed {
    my ($file) = @_;
    -e $file or die "$file is missing; run `make` first\n";
    return $file;
}

# [uid, gid, home] of the account that PostgreSQL, httpd and FPM run as, for they refuse root;
# undef where the tests themselves run as an ordinary user.
sub account {
    return undef if $> != 0;
    my @pw = getpwnam(ACCOUNT);
    if (!@pw) {
        system('useradd', '--system', '--no-create-home', '--shell', '/usr/sbin/nologin', ACCOUNT);
        @pw = getpwnam(ACCOUNT) or die "cannot make the system account " . ACCOUNT . "\n";
    }
    return [ @pw[2, 3] ];
}

# Hand files over to that account.
sub give {
    my @paths = @_;
    my $account = account() or return;
    chown @$account, @paths;
}

# A folder of its own for one server, removed at the end (IDEM_KEEP=1 keeps it and says where it is).
sub own_folder {
    my ($name) = @_;
    my $dir = File::Temp::tempdir("idem-$name-XXXXXX", TMPDIR => 1);
    chmod 0755, $dir;
    give($dir);
    at_end(sub {
        if ($ENV{IDEM_KEEP}) {
            print STDERR "# kept: $dir\n";
        }
        else {
            File::Path::remove_tree($dir, { error => \my $ignored });
        }
    });
    return $dir;
}

# The file of an httpd module of t/lib/modules: mod_NAME.c, built with what another module would have of ours.
sub build_module {
    my ($name) = @_;
    my $folder = own_folder($name);
    my ($failed, $said) = run(self => 1, dir => $folder, cmd => [ 'sh', '-c', 'cc -shared -fPIC -Wall -Werror -o "mod_$1.so" -I"$0/src/httpd" '
        . '-I"$(apxs -q INCLUDEDIR)" $(pkg-config --cflags apr-1) -D_GNU_SOURCE -pthread "$0/t/lib/modules/mod_$1.c"', source_dir(), $name ]);
    die "mod_$name.c: $said\n" if $failed;
    return "$folder/mod_$name.so";
}

# What has to happen however the test ends: run last first, in the process that loaded this file only.
sub at_end { push @at_end, @_ }

sub run_at_end {
    return if $$ != $owner;
    local ($?, $@, $!);
    while (my $code = pop @at_end) {
        eval { $code->(); 1 } or print STDERR "# at the end: $@";
    }
}

END { run_at_end() }
$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
$SIG{PIPE} = 'IGNORE';

sub slurp {
    my ($file) = @_;
    open(my $fh, '<:raw', $file) or die "cannot read $file: $!\n";
    local $/;
    return scalar(<$fh>) // '';
}

sub spew {
    my ($file, $text, $mode) = @_;
    open(my $fh, '>:raw', $file) or die "cannot write $file: $!\n";
    print $fh $text;
    close($fh) or die "cannot write $file: $!\n";
    chmod $mode, $file if defined $mode;
    give($file);
    return $file;
}

sub tail {
    my ($file, $lines) = @_;
    return '' unless -e $file;
    my @all = split /^/, slurp($file);
    splice(@all, 0, @all - $lines) if @all > $lines;
    return join '', @all;
}

# A port of 127.0.0.1 that is free now, from below the range that the kernel gives to clients.
sub free_port {
    for (1 .. 200) {
        my $port = 12_000 + int rand 18_000;
        my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 1) or next;
        close $socket;
        return $port;
    }
    die "no free port on 127.0.0.1\n";
}

# True as soon as the condition holds; false when it did not within the seconds given.
sub wait_for {
    my ($condition, $seconds) = @_;
    my $until = time + ($seconds // 10);
    my $pause = 0.005;
    while (1) {
        return 1 if $condition->();
        return 0 if time > $until;
        sleep $pause;
        $pause *= 1.5 if $pause < 0.1;
    }
}

# Start a program. cmd => [..], env => {..}, dir, out => file for stdout and stderr, out_fd => handle instead,
# in_fd => handle for stdin, session => 1 for a session (and process group) of its own,
# self => 1 to stay the account that we are.
sub spawn {
    my (%arg) = @_;
    my $account = $arg{self} ? undef : account();
    STDOUT->flush;
    STDERR->flush;
    my $pid = fork // die "fork: $!\n";
    return $pid if $pid;
    eval {
        POSIX::setsid() if $arg{session};
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP PIPE);
        if ($account) {
            $) = "$account->[1] $account->[1]";
            POSIX::setgid($account->[1]);
            POSIX::setuid($account->[0]);
            die "cannot become " . ACCOUNT . "\n" if $> == 0 || $< == 0;
        }
        chdir($arg{dir} // '/') or die "chdir $arg{dir}: $!\n";
        if ($arg{in_fd}) {
            open(STDIN, '<&', $arg{in_fd}) or die "stdin: $!\n";
        }
        else {
            open(STDIN, '<', '/dev/null') or die "stdin: $!\n";
        }
        if ($arg{out_fd}) {
            open(STDOUT, '>&', $arg{out_fd}) or die "stdout: $!\n";
        }
        else {
            open(STDOUT, '>>', $arg{out} // '/dev/null') or die "stdout $arg{out}: $!\n";
        }
        open(STDERR, '>&', \*STDOUT) or die "stderr: $!\n";
        delete @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGPASSFILE)};
        my $env = $arg{env} || {};
        for my $name (keys %$env) {
            defined $env->{$name} ? ($ENV{$name} = $env->{$name}) : delete $ENV{$name};
        }
        no warnings 'exec';
        exec { $arg{cmd}[0] } @{ $arg{cmd} } or die "$arg{cmd}[0]: $!\n";
    };
    print STDERR $@;
    POSIX::_exit(127);
}

# Run a program to its end; returns (exit status, output of both streams). stdin => text, timeout => seconds (60).
sub run {
    my (%arg) = @_;
    my $out = File::Temp->new(TEMPLATE => 'idem-run-XXXXXX', TMPDIR => 1);
    my $in;
    if (defined $arg{stdin}) {
        $in = File::Temp->new(TEMPLATE => 'idem-run-XXXXXX', TMPDIR => 1);
        binmode $in;
        print $in $arg{stdin};
        $in->flush;
        seek $in, 0, 0;
    }
    my $pid = spawn(%arg, out_fd => $out, in_fd => $in);
    my $status;
    if (!wait_for(sub { waitpid($pid, POSIX::WNOHANG()) == $pid and defined($status = $?) }, $arg{timeout} // 60)) {
        kill KILL => $pid;
        waitpid $pid, 0;
        return (-1, slurp($out->filename) . "(no end within the time allowed: @{$arg{cmd}})\n");
    }
    return ($status & 127 ? 128 + ($status & 127) : $status >> 8, slurp($out->filename));
}

sub alive {
    my ($pid) = @_;
    return 0 unless $pid;
    waitpid $pid, POSIX::WNOHANG();
    return kill 0 => $pid;
}

# Send a signal and wait for the end; KILL after the seconds given.
sub end_process {
    my ($pid, $signal, $seconds) = @_;
    return 1 unless alive($pid);
    kill $signal => $pid;
    return 1 if wait_for(sub { !alive($pid) }, $seconds // 20);
    kill KILL => $pid;
    waitpid $pid, 0;
    return 0;
}

# The processes whose parent is this one.
sub pids_below {
    my ($parent) = @_;
    my @found;
    opendir(my $proc, '/proc') or die "/proc: $!\n";
    for my $pid (grep { /^\d+$/ } readdir $proc) {
        open(my $fh, '<', "/proc/$pid/stat") or next;
        my $stat = <$fh> // next;
        push @found, $pid if $stat =~ /\) (\S) (\d+) / && $2 == $parent && $1 ne 'Z';
    }
    return sort { $a <=> $b } @found;
}

1;
