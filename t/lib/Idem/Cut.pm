package Idem::Cut;

# A wire between the driver and PostgreSQL that can be cut: what was sent has arrived and was done, but its answer never
# comes back.

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Idem::Util;
use POSIX ();
use Socket;

# new($pg)
sub new {
    my ($class, $pg) = @_;
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 64) or die "listen: $!\n";
    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!\n";
    $ours->autoflush(1);
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        close $ours;
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        eval { relay($listen, $theirs, $pg->socket_dir . '/.s.PGSQL.' . $pg->port) };
        POSIX::_exit(0);
    }
    my $self = bless { pid => $pid, control => $ours, port => $listen->sockport, pg => $pg }, $class;
    at_end(sub { end_process($pid, 'TERM', 5) });
    return $self;
}

sub conninfo {
    my ($self, $user) = @_;
    return sprintf 'host=127.0.0.1 port=%d dbname=%s user=%s', $self->{port}, $self->{pg}->database, $user // 'web';
}

# The next statement arrives, and instead of its answer the connection ends ('cut'), or nothing comes at all ('mute').
# done() then waits until that has happened.
sub arm {
    my ($self, $how, $times) = @_;
    print { $self->{control} } sprintf("%s %d\n", $how, $times // 1);
    while ((readline($self->{control}) // 'armed') !~ /^armed/) { }
}

sub done {
    my ($self) = @_;
    my $said = readline $self->{control};
    return $said;
}

sub relay {
    my ($listen, $control, $server) = @_;
    my $select = IO::Select->new($listen, $control);
    my (%peer, %is_client, %asked, %mute);
    my ($how, $left) = ('', 0);
    my $drop = sub {
        for my $handle (grep { $_ } @_) {
            $select->remove($handle);
            delete $peer{$handle};
            close $handle;
        }
    };
    $control->autoflush(1);
    while (1) {
        for my $handle ($select->can_read) {
            if ($handle == $listen) {
                my $client = $listen->accept or next;
                my $there = IO::Socket::UNIX->new(Peer => $server) or do { close $client; next };
                ($peer{$client}, $peer{$there}) = ($there, $client);
                $is_client{$client} = 1;
                $select->add($client, $there);
                next;
            }
            if ($handle == $control) {
                sysread($control, my $order, 100) or return;
                ($how, $left) = split ' ', $order;
                %asked = ();
                print $control "armed\n";
                next;
            }
            next unless $peer{$handle};
            my $other = $peer{$handle};
            my $n = sysread($handle, my $octets, 65_536);
            if (!$n) {
                $drop->($handle, $other);
                next;
            }
            if ($is_client{$handle}) {
                $asked{$handle} = 1 if $left;
            }
            elsif ($asked{$other} || $mute{$other}) {
                # ReadyForQuery ends every answer: it is done, and nobody hears of it
                next unless $octets =~ /Z\x00\x00\x00\x05[ITE]\z/;
                delete $asked{$other};
                next if $mute{$other};
                print $control "done\n" if !--$left;
                $how eq 'mute' ? ($mute{$other} = 1) : $drop->($other, $handle);
                next;
            }
            my $at = 0;
            while ($at < length $octets) {
                my $sent = syswrite($other, $octets, length($octets) - $at, $at) // last;
                $at += $sent;
            }
        }
    }
}

1;
