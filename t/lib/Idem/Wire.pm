package Idem::Wire;

# A TCP proxy between httpd and PostgreSQL that a test can let fail at a chosen moment. It stands in for the cluster
# where httpd is configured: $t->httpd->{pg} = Idem::Wire->new($t->pg).
#
#   $wire->mode('pass')      everything goes through (at first)
#   $wire->mode('stall')     connections are taken, nothing goes through either way
#   $wire->mode('closed')    nobody listens, and what is open is cut
#   $wire->cut               every connection is cut now
#   $wire->on(NAME => WHAT, times => 1)   when the prepared statement NAME (or one with this text, if NAME
#                            has a space) is sent the next time(s):
#       'lose'     it does not reach the server, the connection is cut
#       'answer'   it reaches the server; when the server answers, the connection is cut and the answer is lost
#       'half'     the same, with the first octets of the answer passed on
#       'hold'     it does not reach the server until ->release, whatever the client has done meanwhile
#       'silent'   it reaches the server, whose answer stays here until ->release
#   $wire->hits              how often a rule has fired
#   $wire->connections       how many there are

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Idem::Util;
use JSON::PP ();
use Socket;

# new(cluster)
sub new {
    my ($class, $pg) = @_;
    my $self = bless { pg => $pg, port => free_port() }, $class;
    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!\n";
    $self->{pid} = fork // die "fork: $!\n";
    if (!$self->{pid}) {
        close $ours;
        $SIG{$_} = 'DEFAULT' for qw(INT TERM);
        $SIG{PIPE} = 'IGNORE';
        eval { serve($theirs, $self->{port}, $pg->port) };
        print STDERR "# wire: $@" if $@;
        POSIX::_exit(0);
    }
    close $theirs;
    $self->{control} = $ours;
    at_end(sub { $self->stop });
    $self->mode('pass');
    return $self;
}

sub conninfo {
    my ($self, %arg) = @_;
    return sprintf 'host=127.0.0.1 port=%d dbname=%s user=%s connect_timeout=2', $self->{port}, $self->{pg}->database,
        $arg{user} // $self->{pg}->user;
}

sub stop { my ($self) = @_; end_process(delete $self->{pid}, 'KILL', 5) if $self->{pid} }

sub ask {
    my ($self, @words) = @_;
    syswrite $self->{control}, JSON::PP::encode_json(\@words) . "\n";
    my $said = '';
    while ($said !~ /\n/) {
        IO::Select->new($self->{control})->can_read(10) or die "the wire does not answer\n";
        sysread($self->{control}, $said, 4096, length $said) or die "the wire is gone\n";
    }
    return JSON::PP::decode_json($said)->[0];
}

sub mode { my ($self, $mode) = @_; $self->ask(mode => $mode) }
sub cut { $_[0]->ask('cut') }
sub on { my ($self, $name, $what, %arg) = @_; $self->ask(on => $name, $what, $arg{times} // 1) }
sub release { $_[0]->ask('release') }
sub hits { $_[0]->ask('hits') }

# How many connections clients have open to the wire, as the kernel counts them.
sub connections {
    my ($self) = @_;
    my $port = sprintf '%04X', $self->{port};
    return scalar grep { (split)[2] =~ /:$port\z/ && (split)[3] eq '01' } split /\n/, slurp('/proc/net/tcp');
}

# ---------------------------------------------------------------- the other process

sub serve {
    my ($control, $port, $to) = @_;
    my $w = { mode => 'closed', rules => {}, hits => 0, pairs => {}, port => $port, to => $to };
    while (1) {
        my @watched = ($control);
        push @watched, $w->{listen} if $w->{listen};
        if ($w->{mode} eq 'pass') {
            for my $pair (values %{ $w->{pairs} }) {
                push @watched, $pair->{client} if $pair->{client} && !$pair->{held};
                push @watched, $pair->{server} if !$pair->{silent};
            }
        }
        for my $fh (IO::Select->new(@watched)->can_read(5)) {
            if ($fh == $control) {
                command($w, $control);
            }
            elsif ($w->{listen} && $fh == $w->{listen}) {
                take($w);
            }
            elsif (my $pair = $w->{pairs}{$fh}) {
                $pair->{client} && $fh == $pair->{client} ? from_client($w, $pair) : from_server($w, $pair);
            }
            last;    # what is watched may have changed
        }
    }
}

sub command {
    my ($w, $control) = @_;
    my $line = <$control> // POSIX::_exit(0);
    my ($verb, @arg) = @{ JSON::PP::decode_json($line) };
    my $answer = 1;
    if ($verb eq 'mode') {
        $w->{mode} = $arg[0];
        if ($arg[0] eq 'closed') {
            close(delete $w->{listen}) if $w->{listen};
            end($w, $_) for my @all = values %{ $w->{pairs} };
        }
        elsif (!$w->{listen}) {
            $w->{listen} = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $w->{port}, Listen => 64, ReuseAddr => 1)
                or die "port $w->{port}: $@\n";
        }
    }
    elsif ($verb eq 'cut') { end($w, $_) for my @all = values %{ $w->{pairs} } }
    elsif ($verb eq 'on') { $w->{rules}{ $arg[0] } = { what => $arg[1], times => $arg[2] } }
    elsif ($verb eq 'hits') { $answer = $w->{hits} }
    elsif ($verb eq 'release') {
        for my $pair (my @all = values %{ $w->{pairs} }) {
            put($pair->{server}, delete $pair->{held}) if $pair->{held};
            delete $pair->{silent};
        }
    }
    syswrite $control, "[$answer]\n";
}

sub take {
    my ($w) = @_;
    my $client = $w->{listen}->accept or return;
    my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $w->{to}, Timeout => 2) or return close $client;
    binmode $_ for $client, $server;
    my $pair = { client => $client, server => $server };
    $w->{pairs}{$client} = $w->{pairs}{$server} = $pair;
}

sub end {
    my ($w, $pair) = @_;
    for my $fh (grep { $_ } @$pair{qw(client server)}) {
        delete $w->{pairs}{$fh};
        close $fh;
    }
    delete @$pair{qw(client server)};
}

sub put { my ($fh, $octets) = @_; print $fh $octets; $fh->flush }

# The rule that a Bind message in these octets meets: B, length, portal without a name, name of the statement.
sub rule_of {
    my ($w, $octets) = @_;
    for my $name (keys %{ $w->{rules} }) {
        next unless $w->{rules}{$name}{times} && $octets =~ ($name =~ / / ? qr/\Q$name\E/ : qr/B.{4}\0\Q$name\E\0/s);
        $w->{rules}{$name}{times}--;
        $w->{hits}++;
        return $w->{rules}{$name}{what};
    }
    return '';
}

sub from_client {
    my ($w, $pair) = @_;
    my $n = sysread $pair->{client}, my $octets, 1 << 20;
    if (!$n) {
        # what is held or silent goes on without its client
        return end($w, $pair) unless $pair->{held} || $pair->{silent};
        delete $w->{pairs}{ $pair->{client} };
        close(delete $pair->{client});
        return;
    }
    my $what = rule_of($w, $octets);
    return end($w, $pair) if $what eq 'lose';
    if ($what eq 'hold') {
        $pair->{held} = $octets;
        return;
    }
    $pair->{$what} = 1 if $what;
    put($pair->{server}, $octets);
}

sub from_server {
    my ($w, $pair) = @_;
    my $n = sysread $pair->{server}, my $octets, 1 << 20;
    return end($w, $pair) if !$n || $pair->{answer};
    if ($pair->{half}) {
        put($pair->{client}, substr $octets, 0, 3);
        return end($w, $pair);
    }
    put($pair->{client}, $octets) if $pair->{client};
}

1;
