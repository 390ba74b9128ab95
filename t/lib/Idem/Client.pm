package Idem::Client;

# A raw HTTP/1.1 client: what is sent is what the test wrote, what comes back is kept octet for octet.

use strict;
use warnings;
use Idem::Connection;
use MIME::Base64 ();

# new(port => N, user => name (password is the name), timeout => seconds, authority => Host value in place of localhost:N)
# ports => [N, M]: every further connection goes to the next of these.
sub new {
    my ($class, %arg) = @_;
    return bless { timeout => 30, turn => \(my $turn = 0), %arg }, $class;
}

# The same client as somebody else, or with other settings.
sub with { my ($self, %arg) = @_; return bless { %$self, %arg }, ref $self }

sub connect {
    my ($self, %arg) = @_;
    my @ports = @{ $self->{ports} || [ $self->{port} ] };
    return Idem::Connection->new(port => $ports[ ${ $self->{turn} }++ % @ports ], timeout => $self->{timeout}, %arg);
}

# The octets of one request. Options:
#   key => text         one Idempotency-Key line, sent as a quoted string
#   headers => [n, v]   field lines as they are, repeats allowed
#   body => octets      with Content-Length; type => Content-Type (application/json where there is a body)
#   chunks => [..]      the body in these chunks, without a length
#   user => name or undef, host => Host value, keep => 1 for a connection that stays open
sub request_text {
    my ($self, $method, $target, %arg) = @_;
    my @line = ("$method $target HTTP/1.1", 'Host: ' . ($arg{host} // $self->{authority} // 'localhost:' . ($self->{port} // $self->{ports}[0])));
    my $user = exists $arg{user} ? $arg{user} : $self->{user};
    push @line, 'Authorization: Basic ' . MIME::Base64::encode_base64("$user:$user", '') if defined $user;
    if (defined $arg{key}) {
        (my $quoted = $arg{key}) =~ s/(["\\])/\\$1/g;
        push @line, "Idempotency-Key: \"$quoted\"";
    }
    my @given = @{ $arg{headers} || [] };
    while (my ($name, $value) = splice @given, 0, 2) {
        push @line, "$name: $value";
    }
    my $body = $arg{body};
    my $type = exists $arg{type} ? $arg{type} : defined $body || $arg{chunks} ? 'application/json' : undef;
    push @line, "Content-Type: $type" if defined $type;
    if ($arg{chunks}) {
        push @line, 'Transfer-Encoding: chunked';
        $body = join '', map { sprintf "%x\r\n%s\r\n", length, $_ } grep { length } @{ $arg{chunks} };
        $body .= "0\r\n\r\n";
    }
    elsif (defined $body) {
        push @line, 'Content-Length: ' . length $body;
    }
    elsif ($method =~ /^(?:POST|PUT|PATCH)$/ && !$arg{no_length}) {
        push @line, 'Content-Length: 0';
    }
    push @line, 'Connection: close' unless $arg{keep};
    return join("\r\n", @line) . "\r\n\r\n" . ($body // '');
}

# Send and go on; ->response of the connection that is returned reads the answer.
sub send {
    my ($self, $method, $target, %arg) = @_;
    my $connection = $arg{on} || $self->connect;
    $connection->write($self->request_text($method, $target, %arg));
    $connection->{method} = $method;
    return $connection;
}

# Send and wait for the answer; on => connection to use one that is open.
sub request {
    my ($self, @request) = @_;
    return $self->send(@request)->response;
}

sub post { my ($self, @request) = @_; return $self->request(POST => @request) }
sub get { my ($self, @request) = @_; return $self->request(GET => @request) }

# All of them at once: each request is [METHOD, target, options]; answers in the same order.
sub parallel {
    my ($self, @requests) = @_;
    my @connections = map { $self->connect } @requests;
    for my $i (0 .. $#requests) {
        my ($method, $target, %arg) = @{ $requests[$i] };
        $self->send($method, $target, %arg, on => $connections[$i]);
    }
    return map { $_->response } @connections;
}

1;
