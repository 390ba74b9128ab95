package Idem::Connection;

# One TCP connection and the reading of what comes back on it.

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Idem::Response;
use Socket ();
use Time::HiRes qw(time);

sub new {
    my ($class, %arg) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $arg{port}, Timeout => 10)
        or die "cannot connect to port $arg{port}: $@\n";
    binmode $socket;
    $socket->blocking(0);
    return bless { socket => $socket, timeout => $arg{timeout} // 30, buffer => '', method => '' }, $class;
}

# What the server says while a big body is still on its way is read too, so that neither side blocks.
sub write {
    my ($self, $octets) = @_;
    my $socket = $self->{socket};
    my $select = IO::Select->new($socket);
    my $until = time + $self->{timeout};
    my $done = 0;
    while ($done < length $octets) {
        my ($read, $write) = IO::Select->select($select, $select, undef, $until - time);
        die "the server does not take the request\n" unless $write && (@$write || @$read);
        if (@$read) {
            my $n = sysread $socket, $self->{buffer}, 65_536, length $self->{buffer};
            return 0 if defined $n && $n == 0 || !defined $n && !$!{EAGAIN};
        }
        if (@$write) {
            my $n = syswrite $socket, $octets, 65_536, $done;
            return 0 if !defined $n && !$!{EAGAIN};
            $done += $n // 0;
        }
    }
    return 1;
}

# More octets into the buffer; false at the end of the stream.
sub more {
    my ($self, $until) = @_;
    IO::Select->new($self->{socket})->can_read($until - time > 0 ? $until - time : 0)
        or die "no answer within $self->{timeout} seconds; so far: " . substr($self->{buffer}, 0, 300) . "\n";
    my $n = sysread $self->{socket}, $self->{buffer}, 262_144, length $self->{buffer};
    return 1 if !defined $n && $!{EAGAIN};
    return $n ? 1 : 0;
}

# True while nothing has been answered within the seconds given.
sub silent {
    my ($self, $seconds) = @_;
    return 0 if length $self->{buffer};
    return !IO::Select->new($self->{socket})->can_read($seconds);
}

# The next response, or undef where the server closed without a word. Interim ones are kept in ->{interim}.
sub response {
    my ($self, %arg) = @_;
    my $until = time + ($arg{timeout} // $self->{timeout});
    my @interim;
    while (1) {
        my $response = $self->head($until) or return undef;
        if ($response->{status} >= 100 && $response->{status} < 200) {
            push @interim, $response;
            next;
        }
        $response->{interim} = \@interim;
        $self->body($response, $until);
        return $response;
    }
}

sub head {
    my ($self, $until) = @_;
    while ($self->{buffer} !~ /\r\n\r\n/) {
        next if $self->more($until);
        return undef unless length $self->{buffer};
        die "the server closed in the middle of a response head: $self->{buffer}\n";
    }
    $self->{buffer} =~ s/\A(.*?\r\n)\r\n//s;
    return Idem::Response->parse($1);
}

sub body {
    my ($self, $response, $until) = @_;
    $response->{body} = '';
    $response->{complete} = 1;
    if ($self->{method} eq 'HEAD' || $response->{status} == 204 || $response->{status} == 304) {
        $response->{framing} = 'none';
    }
    elsif (($response->header('Transfer-Encoding') // '') =~ /chunked/i) {
        $response->{framing} = 'chunked';
        $response->{complete} = $self->chunked($response, $until);
    }
    elsif (defined(my $length = $response->header('Content-Length'))) {
        $response->{framing} = 'length';
        while (length $self->{buffer} < $length) {
            $self->more($until) or last;
        }
        $response->{body} = substr $self->{buffer}, 0, $length, '';
        $response->{complete} = length $response->{body} == $length;
    }
    else {
        $response->{framing} = 'close';
        1 while $self->more($until);
        $response->{body} = delete $self->{buffer};
        $self->{buffer} = '';
    }
}

sub chunked {
    my ($self, $response, $until) = @_;
    while (1) {
        while ($self->{buffer} !~ /\A([0-9a-fA-F]+)[^\r\n]*\r\n/) {
            die "not a chunk: " . substr($self->{buffer}, 0, 60) . "\n" if length $self->{buffer} > 100;
            return 0 unless $self->more($until);
        }
        my ($head, $digits) = $self->{buffer} =~ /\A(([0-9a-fA-F]+)[^\r\n]*\r\n)/;
        my $size = hex $digits;
        if ($size == 0) {
            while ($self->{buffer} !~ /\A0[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n/) {
                return 0 unless $self->more($until);
            }
            $self->{buffer} =~ s/\A0[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n//;
            return 1;
        }
        my $need = length($head) + $size + 2;
        while (length $self->{buffer} < $need) {
            if (!$self->more($until)) {
                $response->{body} .= substr $self->{buffer}, length $head;
                return 0;
            }
        }
        $response->{body} .= substr $self->{buffer}, length $head, $size;
        substr($self->{buffer}, 0, $need) = '';
    }
}

# True when the server has closed, and said nothing more.
sub closed {
    my ($self, $seconds) = @_;
    my $until = time + ($seconds // 5);
    return 0 if length $self->{buffer};
    return 0 unless IO::Select->new($self->{socket})->can_read($until - time);
    my $n = sysread $self->{socket}, $self->{buffer}, 1;
    return defined $n && $n == 0 || !defined $n && !$!{EAGAIN};
}

sub close { my ($self) = @_; CORE::close $self->{socket} }

# Leave as a client does that was killed: a reset.
sub abort {
    my ($self) = @_;
    setsockopt $self->{socket}, Socket::SOL_SOCKET(), Socket::SO_LINGER(), pack('ii', 1, 0);
    CORE::close $self->{socket};
}

1;
