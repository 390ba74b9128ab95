package Idem::Browser;

# As much of a browser as a login needs: cookies a host, redirects, and an Accept that says so. Every host name but a
# numeric one is the httpd of the test.

use strict;
use warnings;
use HTTP::Tiny;
use Idem::Client;

sub new {
    my ($class, %arg) = @_;
    return bless { %arg, client => Idem::Client->new(port => $arg{port}), jar => {} }, $class;
}

sub cookie { my ($self, $host) = @_; my $jar = $self->{jar}{$host} || {}; return join '; ', map { "$_=$jar->{$_}" } sort keys %$jar }

sub keep {
    my ($self, $host, @lines) = @_;
    for my $line (@lines) {
        my ($name, $value) = $line =~ /\A([^=]+)=([^;]*)/ or next;
        $line =~ /expires=Thu, 01.Jan.1970|Max-Age=0/i || $value eq '' ? delete $self->{jar}{$host}{$name} : ($self->{jar}{$host}{$name} = $value);
    }
}

# One request to httpd, no redirect followed; options as for Idem::Client.
sub request {
    my ($self, $method, $host, $target, %arg) = @_;
    my $cookie = $self->cookie($host);
    my $response = $self->{client}->request($method, $target, %arg, host => "$host:$self->{port}",
        headers => [ Accept => 'text/html,application/xhtml+xml,*/*;q=0.8', 'Sec-Fetch-Mode' => 'navigate', ($cookie ? (Cookie => $cookie) : ()), @{ $arg{headers} || [] } ]);
    $self->keep($host, $response->values('Set-Cookie'));
    return $response;
}

# Goes to an address and on to wherever it is sent; gives the address that sends nowhere and its response.
sub go {
    my ($self, $url) = @_;
    for (1 .. 12) {
        my ($host, $port, $target) = $url =~ m{\Ahttp://([^/:]+)(?::(\d+))?(/.*)\z} or die "not an address: $url\n";
        my ($response, $location);
        if ($host =~ /\A[0-9.]+\z/) {
            my $cookie = $self->cookie("$host:$port");
            my $got = HTTP::Tiny->new(max_redirect => 0, timeout => 20)->get($url, { headers => { $cookie ? (cookie => $cookie) : () } });
            my $set = $got->{headers}{'set-cookie'};
            $self->keep("$host:$port", ref $set ? @$set : defined $set ? $set : ());
            $location = $got->{headers}{location};
            die "the provider says $got->{status}: $got->{content}\n" unless $location;
            $location = "http://$host:$port$location" if $location =~ m{\A/};
        }
        else {
            $response = $self->request(GET => $host, $target);
            $location = $response->header('Location') if $response->status =~ /\A30/;
            $location = "http://$host:$self->{port}$location" if defined $location && $location =~ m{\A/};
        }
        return ($url, $response) unless defined $location;
        $url = $location;
    }
    die "no end of redirects at $url\n";
}

1;
