package Idem::Driver;

# The store's provider without httpd: out/store-driver runs its calls by script (t/store/driver.c). And the store's
# standard set-up: a cluster, the schema by the tool itself, a login that is no more than the web server's role.

use strict;
use warnings;
use Exporter 'import';
use IO::Handle;
use IO::Select;
use IPC::Open3 ();
use Idem::Postgres;
use Idem::Util;
use Scalar::Util ();
use Test::More;

our @EXPORT = (@Test::More::EXPORT, @Idem::Util::EXPORT, qw(ctl migrated uuid));

my $uuids = 0;
sub uuid { return sprintf '01890000-0000-7000-8000-%012x', $_[0] // ++$uuids }

# (exit status, output) of idempotencyctl on this cluster.
sub ctl {
    my ($pg, @command) = @_;
    my %arg = ref $command[0] ? %{ shift @command } : ();
    return run(cmd => [ needed(out_dir() . '/idempotencyctl'), @command ], self => 1,
        env => { %{ $pg->env(%arg) }, PGDATABASE => $arg{database} // $pg->database }, dir => '/');
}

# A cluster with the registry in it.
sub migrated {
    my $pg = Idem::Postgres->new(@_);
    my ($status, $said) = ctl($pg, 'migrate');
    die "migrate failed: $said" if $status;
    $pg->do('CREATE ROLE web LOGIN IN ROLE idempotency_writer');
    return $pg;
}

# IDEM_WRITERS=2 in the environment lets every driver combine its calls with so many writers.
# new(pg => cluster, user => 'web', conninfo => another way there, set => { prepared => 0, ... }, heartbeat => 1)
sub new {
    my ($class, %arg) = @_;
    my $self = bless { n => 0, log => own_folder('driver') . '/log' }, $class;
    my $conninfo = $arg{conninfo} // $arg{pg}->conninfo(user => $arg{user} // 'web');
    local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS)};
    delete @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS)};
    $ENV{$_} = $arg{env}{$_} for keys %{ $arg{env} || {} };
    open(my $log, '>>', $self->{log}) or die "$self->{log}: $!\n";
    my $pid = IPC::Open3::open3(my $to, my $from, '>&' . fileno($log), needed(out_dir() . '/store-driver'), $conninfo);
    close $log;
    $to->autoflush(1);
    @$self{qw(pid to from)} = ($pid, $to, $from);
    my $weak = $self;
    Scalar::Util::weaken($weak);
    at_end(sub { $weak->end if $weak });
    my %set = ($ENV{IDEM_WRITERS} ? (writers => $ENV{IDEM_WRITERS}) : (), %{ $arg{set} || {} });
    $self->call('set', %set) if %set;
    if ($arg{heartbeat} // 1) {
        my $beat = $self->call('heartbeat');
        die "no heartbeat: $beat->{result}: " . $self->message . $self->log unless $beat->{result} eq 'OK';
    }
    return $self;
}

sub DESTROY { local ($?, $@, $!); $_[0]->end }

sub end {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    close $self->{to};
    end_process($pid, 'TERM', 10) unless wait_for(sub { !alive($pid) }, 5);
}

sub encode { my ($text) = @_; $text =~ s/([^A-Za-z0-9_.:\/-]|^-$)/sprintf '%%%02x', ord $1/ge; return $text }
sub decode { my ($text) = @_; return undef if $text eq '-'; $text =~ s/%([0-9a-f]{2})/chr hex $1/ge; return $text }

# One call. Values are octets; undef is NULL. The answer: { result, ms, and what the call prints }.
sub call {
    my ($self, $command, %value) = @_;
    $self->send($command, %value);
    return $self->answer;
}

sub send {
    my ($self, $command, %value) = @_;
    print { $self->{to} } join(' ', $command, map { "$_=" . (defined $value{$_} ? encode($value{$_}) : '-') } sort keys %value) . "\n";
}

sub answer {
    my ($self) = @_;
    my $line = '';
    while (substr($line, -1) ne "\n") {
        IO::Select->new($self->{from})->can_read(60) or die "no answer from the driver\n";
        sysread($self->{from}, $line, 65_536, length $line) or die "the driver is gone:\n" . $self->log;
    }
    chomp $line;
    my ($result, @pairs) = split / /, $line;
    return { result => $result, map { /^(\w+)=(.*)$/s ? ($1 => decode($2)) : () } @pairs };
}

sub log { slurp($_[0]{log}) }

# A call on a thread of its own; and how it ended, or several of them.
sub begin { my ($self, $call, %value) = @_; return $self->call('begin', call => $call, %value)->{id} }
sub join_all { my ($self, @id) = @_; return map { $self->call('join', id => $_) } @id }

# Why the last connection was not made.
sub message { $_[0]->call('connections')->{message} }

1;
